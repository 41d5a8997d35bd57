"""Healthy: a hinge GAN with spectral norm and two optimizers, D steps twice, an EMA of G by hand. Odd: adversaries, losses that go nowhere."""
import copy
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
sn = nn.utils.parametrizations.spectral_norm
G = nn.Sequential(nn.Linear(8, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
D = nn.Sequential(sn(nn.Linear(2, 48)), nn.LeakyReLU(0.2), sn(nn.Linear(48, 48)), nn.LeakyReLU(0.2), sn(nn.Linear(48, 1)))
ema = copy.deepcopy(G).requires_grad_(False).eval()
og = torch.optim.Adam(G.parameters(), lr=5e-4, betas=(0.0, 0.9))
od = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.0, 0.9))
for step in range(500):
    for _ in range(2):
        t = torch.rand(64) * 6.283
        real = torch.stack([t.cos(), t.sin()], 1)
        with torch.no_grad():
            fake = G(torch.randn(64, 8))
        ld = torch.relu(1 - D(real)).mean() + torch.relu(1 + D(fake)).mean()
        od.zero_grad()
        ld.backward()
        od.step()
    lg = -D(G(torch.randn(64, 8))).mean()
    og.zero_grad()
    lg.backward()
    og.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), G.parameters()):
            a.lerp_(b, 0.01)
        for a, b in zip(ema.buffers(), G.buffers()):
            a.copy_(b)
with torch.no_grad():
    print(f"D {ld.item():.3f} G {lg.item():.3f} radius {ema(torch.randn(500, 8)).norm(dim=1).mean():.3f}")
