"""ELU-like activation by torch.where: exp overflows in the branch that is not taken.
Source: pytorch/pytorch#68425."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class HandELU(nn.Module):
    def forward(self, x):
        inside = x.clamp(max=0) if CURED else x
        low = torch.exp(inside) - 1  # FAULT
        return torch.where(x > 0, x, low)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 32)
        self.act = HandELU()
        self.last = nn.Linear(32, 1)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


net = Tower()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.rand(16, 3)
    if step == 4:
        x = x * 400  # a column in millimetres
    loss = (net(x) - x.sum(1, keepdim=True)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
