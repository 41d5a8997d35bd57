"""A non-saturating GAN on a ring of eight blobs, Adam(0.5, 0.999), 500 steps.

Healthy: neither loss leaves [0.1, 5]
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, o))


G, D = mlp(8, 2), mlp(2, 1)
g_opt = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
d_opt = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
for step in range(500):
    a = torch.randint(0, 8, (64,)) * math.pi / 4
    real = torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(64, 2)
    fake = G(torch.randn(64, 8))
    d_loss = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    g_loss = F.softplus(-D(fake)).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
print("end:", d_loss.item(), g_loss.item())
