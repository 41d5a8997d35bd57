"""The EMA copy follows the parameters but never gets BatchNorm's running statistics.

Source: https://github.com/FlyreelAI/sesemi/issues/36
Truth: the EMA model's running_mean is still 0 at the end, its accuracy is chance
Could a tool know: yes: a copy's parameters follow the trained model's, its running statistics never change
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import copy

centers = torch.randn(5, 16) * 1.5 + 4


def batch(n=64):
    y = torch.randint(0, 5, (n,))
    return centers[y] + torch.randn(n, 16), y


model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))
ema = copy.deepcopy(model).requires_grad_(False).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(300):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.mul_(0.98).add_(b, alpha=0.02)
        if HEALTHY:
            for a, b in zip(ema.buffers(), model.buffers()):
                a.copy_(b)
    if step % 50 == 49:
        with torch.no_grad():
            x, y = batch(256)
            print(step, round(loss.item(), 4), "ema accuracy", (ema(x).argmax(1) == y).float().mean().item())
print("end: ema running_mean", round(ema[1].running_mean.abs().mean().item(), 4))
