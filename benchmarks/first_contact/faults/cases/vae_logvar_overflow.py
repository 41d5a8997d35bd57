"""VAE: exp(logvar) of an encoder without bounds.
Source: AntixK/PyTorch-VAE#16, AppliedDataSciencePartners/WorldModels#9."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(), nn.Flatten(), nn.Linear(8 * 16, 8))
        self.dec = nn.Sequential(nn.Linear(4, 8 * 16), nn.Unflatten(1, (8, 4, 4)), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        if CURED:
            logvar = logvar.clamp(-20, 10)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)  # FAULT
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z), kl.mean()


net = VAE()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    x = torch.rand(6, 1, 8, 8)
    if step == 3:
        x = x * 255 * 4  # somebody forgot ToTensor's division
    out, kl = net(x)
    loss = (out - x).pow(2).mean() + 1e-4 * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
