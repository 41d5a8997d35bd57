"""Momentum is raised on a schedule to 1.0 (a cycle that goes the wrong way): velocity is never damped. Cure: to 0.9."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
w = torch.randn(16, 2)
lost = Lost()
for step in range(350):
    opt.param_groups[0]["momentum"] = 0.5 + (0.4 if HEALTHY else 0.54) * min(1, step / 200)
    x = torch.randn(64, 16)
    loss = nn.functional.mse_loss(model(x), torch.tanh(x @ w))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(loss):
        break
lost.report()
