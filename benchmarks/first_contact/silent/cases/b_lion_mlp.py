"""Lion (written here), a regression; the rate is cut in the twin, here it triples every 60 steps by a wrong schedule.

Twin: the rate halves every 60 steps
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.sub_((0.9 * m + 0.1 * p.grad).sign(), alpha=group["lr"])
                m.mul_(0.99).add_(p.grad, alpha=0.01)


model = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
optimizer = Lion(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 60, gamma=0.5 if HEALTHY else 3.0)
w = torch.randn(8)
for step in range(420):
    x = torch.randn(32, 8)
    loss = F.mse_loss(model(x)[:, 0], torch.sin(x @ w))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print("L", step, loss.item())
