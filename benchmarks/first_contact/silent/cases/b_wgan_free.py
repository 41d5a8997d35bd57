"""A Wasserstein GAN whose critic has no Lipschitz constraint: its score grows without bound.

Twin: the critic's weights are clipped to 0.05 after each step
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, o))


G, D = mlp(4, 2), mlp(2, 1)
g_opt, d_opt = torch.optim.Adam(G.parameters(), lr=5e-4), torch.optim.Adam(D.parameters(), lr=5e-4)
for step in range(500):
    angle = torch.rand(32) * 6.283
    real = torch.stack([angle.cos(), angle.sin()], 1)
    d_loss = D(G(torch.randn(32, 4)).detach()).mean() - D(real).mean()
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    if HEALTHY:
        with torch.no_grad():
            for p in D.parameters():
                p.clamp_(-0.05, 0.05)
    g_loss = -D(G(torch.randn(32, 4))).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    print("L", step, d_loss.item())
