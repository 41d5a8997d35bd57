"""Benign: sqrt(relu(z)) at z < 0 has an infinite slope, but relu's own backward selects 0 there (it does not multiply).
Source: Own: threshold_backward selects, it does not multiply."""
import torch
from torch import nn

torch.manual_seed(0)


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        return torch.sqrt(torch.relu(self.down(torch.relu(self.up(x)))))


net = Energy()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(4):
    loss = (net(torch.randn(5, 6)) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert all(p.isfinite().all() for p in net.parameters())
