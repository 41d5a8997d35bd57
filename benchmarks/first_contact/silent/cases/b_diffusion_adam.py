"""A small denoiser, AdamW with beta2 = 0.5 and a warm-up to 0.2.

Twin: beta2 = 0.999 and 0.002
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

T = 50
bar = (1 - torch.linspace(1e-4, 0.1, T)).cumprod(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.net = nn.Sequential(nn.Linear(18, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002 if HEALTHY else 0.2, betas=(0.9, 0.999 if HEALTHY else 0.5))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 400))
for step in range(400):
    angle = torch.rand(64) * 6.283
    x0 = torch.stack([angle.cos(), angle.sin()], 1)
    t, noise = torch.randint(0, T, (64,)), torch.randn(64, 2)
    x = bar[t].sqrt()[:, None] * x0 + (1 - bar[t]).sqrt()[:, None] * noise
    loss = F.mse_loss(model(x, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print("L", step, loss.item())
