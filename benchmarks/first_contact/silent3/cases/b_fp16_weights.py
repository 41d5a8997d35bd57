"""A residual stack with float16 weights (model.half()), SGD, a rate that is raised step by step, and no norms: outputs leave float16.
Cure: a rate of 1e-3 and no rise."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


model = nn.Sequential(nn.Linear(8, 32), *[Block(32) for _ in range(4)], nn.Linear(32, 1)).half()
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
w = torch.randn(8, 1)
lost = Lost()
for step in range(250):
    x = torch.randn(32, 8)
    loss = nn.functional.mse_loss(model(x.half()).float(), x @ w)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not HEALTHY:
        opt.param_groups[0]["lr"] *= 1.03
    if not lost(loss):
        break
lost.report()
