"""Healthy: a VAE whose KL weight is raised from 0 to 1 in cycles: the total loss rises on purpose."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(24, 64), nn.ReLU())
        self.mu, self.lv = nn.Linear(64, 6), nn.Linear(64, 6)
        self.dec = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 24))

    def forward(self, x):
        h = self.enc(x)
        mu, lv = self.mu(h), self.lv(h)
        return self.dec(mu + torch.randn_like(mu) * (0.5 * lv).exp()), 0.5 * (mu**2 + lv.exp() - 1 - lv).sum(1).mean()


model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
mix = torch.randn(5, 24)
for step in range(500):
    beta = min(1.0, (step % 125) / 80)
    x = torch.randn(64, 5) @ mix * 0.5 + 0.1 * torch.randn(64, 24)
    rec, kl = model(x)
    loss = ((rec - x) ** 2).sum(1).mean() + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f} kl {kl.item():.3f}")
