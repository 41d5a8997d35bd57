"""caogang/wgan-gp (gradient penalty), HIPS/autograd#586: sqrt of a zero gradient norm, differentiated a second time
TRUTH op=aten.div|aten.mul reason=gradient of sqrt or norm at zero phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class D(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b, self.c = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 1)
    def forward(self, x): return self.c(F.relu(self.b(F.relu(self.a(x)))))
def gp(d, real, fake):
    x = (real + torch.rand(len(real), 1) * (fake - real)).requires_grad_()
    g, = torch.autograd.grad(d(x).sum(), x, create_graph=True)
    s = (g ** 2).sum(1) + (1e-12 if CURED else 0)
    norm = torch.sqrt(s)  # FAULT
    return ((norm - 1) ** 2).mean()
d, g = D(), nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8)); do, go = torch.optim.Adam(d.parameters(), 1e-3), torch.optim.Adam(g.parameters(), 1e-3)
for step in range(4):
    real = torch.randn(8, 8)
    if step == 2:
        with torch.no_grad(): d.b.bias.fill_(-100.)       # all units dead
    fake = g(torch.randn(8, 4)).detach()
    ld = d(fake).mean() - d(real).mean() + 10 * gp(d, real, fake); do.zero_grad(); ld.backward(); do.step()
    lg = -d(g(torch.randn(8, 4))).mean(); go.zero_grad(); lg.backward(); go.step(); print(step, ld.item(), lg.item())
done(ld.detach(), d, g)
