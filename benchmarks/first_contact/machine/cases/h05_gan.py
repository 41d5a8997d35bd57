# opts: --check again:every=1
# truth: healthy (pytorch/examples dcgan with spectral norm, two optimizers, R1 penalty with double backward)
import flips as C, torch
from torch import nn
from torch.nn.utils import spectral_norm as SN
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16)); D = nn.Sequential(SN(nn.Linear(16, 32)), nn.LeakyReLU(0.2), nn.Dropout(0.1), SN(nn.Linear(32, 1)))
og, od = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999)), torch.optim.RMSprop(D.parameters(), 2e-4); f = nn.functional.softplus
for C.STEP in range(6):
    x = torch.randn(8, 16).requires_grad_(); fake = G(torch.randn(8, 8))
    od.zero_grad(); r = D(x); p = torch.autograd.grad(r.sum(), x, create_graph=True)[0].square().sum(1).mean()
    (f(-r).mean() + f(D(fake.detach())).mean() + 5 * p).backward(); od.step()
    og.zero_grad(); f(-D(fake)).mean().backward(); og.step()
C.finish(G, D, og, od)
