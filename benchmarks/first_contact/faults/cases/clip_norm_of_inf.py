"""clip_grad_norm_ with one infinite gradient: norm inf, coefficient 0, 0 * inf = nan. The gradient is the fault, before the clipping.
Source: pytorch/pytorch#46849, #53843."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Scale(nn.Module):
    """Predicts a strictly positive width as |a|^0.5."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor([0.5, 0.7, 0.9]))

    def forward(self, x):
        a = self.a.abs()
        if CURED:
            a = a + 1e-6
        return x * a**0.5  # FAULT


net = nn.Sequential(nn.Linear(3, 3), Scale(), nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(4):
    if step == 2:
        net[1].a.data[1] = 0.0  # a proximal step of an L1 penalty set it to 0
    loss = (net(torch.randn(8, 3)) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    print(step, loss.item())
