"""Benign: the infinite slope of sqrt at 0 is taken away by a tensor hook (nan_to_num) before it reaches any parameter's gradient.
Source: the workaround of pytorch/pytorch#23395-like threads (register_hook to zero nan gradients)."""
import torch
from torch import nn

torch.manual_seed(0)


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 6, bias=False)

    def forward(self, x):
        square = self.fc(x).pow(2).sum(1)
        if square.requires_grad:
            square.register_hook(lambda g: torch.nan_to_num(g, nan=0.0, posinf=0.0, neginf=0.0))
        return torch.sqrt(square)


net = Distance()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(5):
    x = torch.randn(6, 4)
    x[2] = 0
    loss = (net(x) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert all(p.isfinite().all() for p in net.parameters())
