"""GAN: two models, two optimizers
Source: pytorch/examples dcgan
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
g = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
d = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
og, od = torch.optim.Adam(g.parameters(), 1e-3), torch.optim.Adam(d.parameters(), 1e-3)

for k in range(7):
    real, fake = torch.randn(8, 6), g(torch.randn(8, 4))
    od.zero_grad()
    ld = F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()
    ld.backward()
    od.step()
    og.zero_grad()
    lg = F.softplus(-d(fake)).mean()
    lg.backward()
    og.step()
    print(k, kit.bits(ld), kit.bits(lg), kit.digest(g, d, og, od))
