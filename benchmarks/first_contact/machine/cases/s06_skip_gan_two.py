# opts: --on-nonfinite skip
# modes: bh wf
# truth: GAN: at step 4 the discriminator's real batch is bad: od.step left out, og.step (finite gradients) is taken; equal to a twin that does just this
# source: pytorch/examples dcgan
import flips as C, torch
from torch import nn
torch.manual_seed(0); G = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)); Dd = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)); og, od = torch.optim.Adam(G.parameters(), 1e-3), torch.optim.Adam(Dd.parameters(), 1e-3); f = nn.functional.softplus
for C.STEP in range(9):
    x = torch.randn(8, 8)
    if C.STEP == 4 and C.FAULT: x[0] = float("inf")
    fake = G(torch.randn(8, 8)); od.zero_grad()
    (f(-Dd(x)).mean() + f(Dd(fake.detach())).mean()).backward()
    if not (C.STEP == 4 and C.A.healthy): od.step()
    og.zero_grad(); f(-Dd(fake)).mean().backward(); og.step()
C.finish(G, Dd, og, od)
