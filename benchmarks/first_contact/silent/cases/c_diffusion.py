"""A small denoiser with an EMA copy, AdamW, linear warm-up, 500 steps; samples at the end.

Healthy: the loss falls
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
import copy

T = 50
bar = (1 - torch.linspace(1e-4, 0.1, T)).cumprod(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.net = nn.Sequential(nn.Linear(18, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


model = Denoiser()
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 100))
for step in range(500):
    a = torch.rand(64) * 6.283
    x0, t, noise = torch.stack([a.cos(), a.sin()], 1), torch.randint(0, T, (64,)), torch.randn(64, 2)
    x = bar[t].sqrt()[:, None] * x0 + (1 - bar[t]).sqrt()[:, None] * noise
    loss = F.mse_loss(model(x, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        for e, p in zip(ema.parameters(), model.parameters()):
            e.lerp_(p, 0.01)
ema.eval()
with torch.no_grad():
    out = ema(torch.randn(16, 2), torch.full((16,), T - 1))
print("end:", loss.item(), out.std().item())
