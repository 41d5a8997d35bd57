"""Tabular VAE whose encoder's log variance is unbounded; an unscaled column has a huge value.
Source: vanderschaarlab/synthcity#331 (exploding standard deviations), AntixK/PyTorch-VAE#16."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(25)
CURED = "--cured" in sys.argv


class VAE(nn.Module):
    def __init__(self, cols=10, latent=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(cols, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU())
        self.mu, self.logvar = nn.Linear(64, latent), nn.Linear(64, latent)
        self.dec = nn.Sequential(nn.Linear(latent, 64), nn.LeakyReLU(), nn.Linear(64, cols))

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * torch.randn_like(std)

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        if CURED:
            logvar = logvar.clamp(-30, 20)
        z = self.reparameterize(mu, logvar)
        return self.dec(z), mu, logvar


def loss_fn(x, out, mu, logvar):
    kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(1)  # FAULT
    return torch.nn.functional.smooth_l1_loss(out, x) + 1e-3 * kl.mean()


table = torch.randn(400, 10)
table[283, 6] = 4.0e4  # income in cents
model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for step, rows in enumerate(table.split(20)):
    loss = loss_fn(rows, *model(rows))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
    print(step, losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
