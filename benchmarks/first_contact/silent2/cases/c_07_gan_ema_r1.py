"""Healthy, 400 steps: GAN, two rates, lazy R1 penalty each 8 steps (create_graph), spectral norm, EMA generator, non-saturating loss. STEPS 400"""
import copy, torch, torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm as sn
torch.set_num_threads(1); torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2)); D = nn.Sequential(sn(nn.Linear(2, 48)), nn.LeakyReLU(0.2), sn(nn.Linear(48, 48)), nn.LeakyReLU(0.2), nn.Linear(48, 1))
E = copy.deepcopy(G).requires_grad_(False); og, od = torch.optim.Adam(G.parameters(), 5e-4, (0.0, 0.99)), torch.optim.Adam(D.parameters(), 1e-3, (0.0, 0.99))
for step in range(400):
    a = torch.rand(64) * 6.28; r = torch.stack([a.cos(), a.sin()], 1).requires_grad_(step % 8 == 0)
    od.zero_grad(); dr = D(r); dl = F.softplus(-dr).mean() + F.softplus(D(G(torch.randn(64, 4)).detach())).mean()
    if step % 8 == 0: dl = dl + 0.5 * torch.autograd.grad(dr.sum(), r, create_graph=True)[0].pow(2).sum(1).mean() * 8
    dl.backward(); od.step(); D.requires_grad_(False); og.zero_grad(); gl = F.softplus(-D(G(torch.randn(64, 4)))).mean(); gl.backward(); og.step(); D.requires_grad_(True)
    for p, q in zip(E.parameters(), G.parameters()): p.lerp_(q.detach(), 0.01)
print(f"STEPS 400 d {dl:.3f} g {gl:.3f}")
