"""Healthy: a hinge GAN with spectral norm, two steps of the discriminator per generator step, an EMA of the generator.  400 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
sn = nn.utils.parametrizations.spectral_norm
G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)); D = nn.Sequential(sn(nn.Linear(2, 64)), nn.LeakyReLU(.2), sn(nn.Linear(64, 64)), nn.LeakyReLU(.2), sn(nn.Linear(64, 1))); G_ema = copy.deepcopy(G).requires_grad_(False)
og, od = torch.optim.Adam(G.parameters(), 2e-4, (0., .9)), torch.optim.Adam(D.parameters(), 8e-4, (0., .9))
for step in range(400):
    for _ in range(2):
        a = torch.rand(64) * 6.283; x = torch.stack([a.cos(), a.sin()], 1) + .05 * torch.randn(64, 2); f = G(torch.randn(64, 8)).detach(); ld = F.relu(1 - D(x)).mean() + F.relu(1 + D(f)).mean(); od.zero_grad(); ld.backward(); od.step()
    lg = -D(G(torch.randn(64, 8))).mean(); og.zero_grad(); lg.backward(); og.step()
    with torch.no_grad(): [e.lerp_(p, .01) for e, p in zip(G_ema.parameters(), G.parameters())]
    if step % 50 == 0: print(step, ld.item(), lg.item())
