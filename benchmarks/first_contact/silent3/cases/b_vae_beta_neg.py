"""A VAE whose KL weight is annealed by a formula that goes below zero: the posterior is paid to leave the prior. Cure: clamp at 0.1."""
import math
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.mu, self.lv = nn.Linear(20, 48), nn.Linear(48, 4), nn.Linear(48, 4)
        self.d = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 20))

    def forward(self, x):
        h = torch.relu(self.e(x))
        mu, lv = self.mu(h), self.lv(h)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        return self.d(z), 0.5 * (mu**2 + lv.exp() - 1 - lv).sum(1).mean()


model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
mix = torch.randn(4, 20)
lost = Lost()
for step in range(320):
    beta = 0.3 - step / 300
    if HEALTHY:
        beta = max(beta, 0.1)
    x = torch.randn(64, 4) @ mix + 0.1 * torch.randn(64, 20)
    rec, kl = model(x)
    r = ((rec - x) ** 2).mean()
    loss = r + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(r):
        break
lost.report()
