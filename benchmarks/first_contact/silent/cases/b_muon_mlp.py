"""Muon (written here) on all matrices without weight decay, a warm-up of 400 steps to a rate of 0.6.

Twin: warm-up to 0.01 with weight decay 0.1
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def newton_schulz(g):
    x = g / (g.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, wd):
        super().__init__(params, dict(lr=lr, wd=wd))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.mul_(0.95).add_(p.grad)
                p.mul_(1 - group["lr"] * group["wd"])
                p.sub_(newton_schulz(p.grad + 0.95 * m), alpha=group["lr"])


model = nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 2))
hidden = [m.weight for m in model if isinstance(m, nn.Linear)]
rest = [p for p in model.parameters() if all(p is not h for h in hidden)]
muon = Muon(hidden, 0.01 if HEALTHY else 0.6, 0.1 if HEALTHY else 0.0)
adam = torch.optim.AdamW(rest, lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(muon, lambda s: min(1, (s + 1) / 400))
w = torch.randn(12, 2)
for step in range(400):
    x = torch.randn(32, 12)
    loss = F.mse_loss(model(x), torch.tanh(x @ w) + 0.3 * torch.randn(32, 2))
    for o in (muon, adam):
        o.zero_grad()
    loss.backward()
    for o in (muon, adam):
        o.step()
    schedule.step()
    print("L", step, loss.item())
