"""An energy-based model trained by contrastive divergence without a penalty on energies: real and fake energies drift apart without bound.
Cure: a penalty on squared energies."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
E = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(E.parameters(), lr=3e-3)
lost = Lost("abs")
for step in range(250):
    real = torch.randn(64, 3) * 0.2 + torch.tensor([1.0, 0.0, -1.0])
    x = torch.randn(64, 3)
    for _ in range(4):
        x = x.detach().requires_grad_(True)
        g = torch.autograd.grad(E(x).sum(), x)[0]
        x = x - 0.05 * g.clamp(-1, 1) + 0.05 * torch.randn_like(x)
    fake = x.detach()
    er, ef = E(real), E(fake)
    loss = er.mean() - ef.mean()
    if HEALTHY:
        loss = loss + 0.5 * (er**2 + ef**2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(loss):
        break
lost.report()
