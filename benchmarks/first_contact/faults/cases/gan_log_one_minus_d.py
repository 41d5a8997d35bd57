"""The original GAN's generator loss log(1 - D(G(z))) with a discriminator that is fooled completely.
Source: Goodfellow et al. 2014 (section 3, saturating loss); hwalsuklee/tensorflow-mnist-VAE#4 (the same log)."""
import sys
import torch
import torch.nn.functional as F
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.ConvTranspose2d(4, 8, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


g, d = Generator(), Discriminator()
og, od = torch.optim.Adam(g.parameters(), 2e-4), torch.optim.Adam(d.parameters(), 2e-4)
for step in range(4):
    fake = g(torch.randn(6, 4, 1, 1))
    d_loss = F.softplus(-d(torch.rand(6, 1, 8, 8))).mean() + F.softplus(d(fake.detach())).mean()
    od.zero_grad()
    d_loss.backward()
    od.step()
    if step == 2:
        d.net[3].bias.data.fill_(30.0)
    logit = d(fake)
    g_loss = -F.softplus(logit).mean() if CURED else torch.log(1 - torch.sigmoid(logit)).mean()  # FAULT
    og.zero_grad()
    g_loss.backward()
    og.step()
    print(step, d_loss.item(), g_loss.item())
