import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a least-squares GAN with spectral norm
from torch.nn.utils.parametrizations import spectral_norm as sn
G = nn.Sequential(nn.Linear(6, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 2))
D = nn.Sequential(sn(nn.Linear(2, 48)), nn.LeakyReLU(0.2), sn(nn.Linear(48, 48)), nn.LeakyReLU(0.2), sn(nn.Linear(48, 1)))
og, od = torch.optim.Adam(G.parameters(), 2e-3, (0.5, 0.99)), torch.optim.Adam(D.parameters(), 2e-3, (0.5, 0.99))
for step in range(400):
    a = torch.rand(64) * 6.28
    real = torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(64, 2)
    fake = G(torch.randn(64, 6))
    d = ((D(real) - 1) ** 2).mean() + (D(fake.detach()) ** 2).mean()
    od.zero_grad(); d.backward(); od.step()
    D.requires_grad_(False)
    g = ((D(fake) - 1) ** 2).mean()
    og.zero_grad(); g.backward(); og.step()
    D.requires_grad_(True)
print("steps", 800)
report(G, D)
