# opts: --check again:every=1
# truth: bit 24 of the gradient that D's first layer gives in the generator's backward (G's output gradient), step 3: hardware (dgrad mm), G's or D's
# source: pytorch/examples dcgan
import flips as C, torch
from torch import nn
torch.manual_seed(0); G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16)); D = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)); og, od = torch.optim.Adam(G.parameters(), 2e-4), torch.optim.Adam(D.parameters(), 2e-4); f = nn.functional.softplus
for C.STEP in range(7):
    x = torch.randn(8, 16); fake = G(torch.randn(8, 8))
    od.zero_grad(); (f(-D(x)).mean() + f(D(fake.detach())).mean()).backward(); od.step()
    og.zero_grad(); fake.register_hook(lambda g: (C.poke(g, 20, 24, at=3, what="D's dgrad to fake"), None)[1]); f(-D(fake)).mean().backward(); og.step()  # FAULT
C.finish(G, D)
