"""Benign: atan2(0, 0) in a loss: torch's own backward masks the infinite slope to 0.
Source: looks like pytorch/pytorch#108618's faults, but atan2_backward fills 0 at the origin."""
import torch
from torch import nn

torch.manual_seed(0)


class Heading(nn.Module):
    def __init__(self):
        super().__init__()
        self.flow = nn.Linear(6, 2, bias=False)

    def forward(self, x):
        v = self.flow(x)
        return torch.atan2(v[:, 1], v[:, 0])


net = Heading()
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(4):
    x = torch.randn(8, 6)
    x[5] = 0
    loss = (1 - torch.cos(net(x) - torch.rand(8))).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert all(p.isfinite().all() for p in net.parameters())
