"""A VAE with KL annealing over 150 steps, Adam, 400 steps.

Healthy: the loss falls, then rises a little with the KL's weight
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 8)), nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 16))

    def forward(self, x):
        mean, log_var = self.enc(x).chunk(2, 1)
        return self.dec(mean + torch.randn_like(mean) * (log_var / 2).exp()), mean, log_var


model, mix = VAE(), torch.randn(3, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(400):
    x = torch.randn(64, 3) @ mix + 0.1 * torch.randn(64, 16)
    out, mean, log_var = model(x)
    rec = (out - x).pow(2).sum(1).mean()
    kl = 0.5 * (mean.pow(2) + log_var.exp() - 1 - log_var).sum(1).mean()
    loss = rec + min(1, step / 150) * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("end:", rec.item(), kl.item())
