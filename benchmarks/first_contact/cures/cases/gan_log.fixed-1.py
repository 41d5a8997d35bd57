import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://raberrytv.wordpress.com/page/2/
class D(nn.Module):
    def __init__(self):
        super().__init__(); self.net = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    def forward(self, real, fake):
        pr, pf = torch.sigmoid(self.net(real)), torch.sigmoid(self.net(fake))
        return -(torch.log(pr.clamp_min(1e-6)) + torch.log((1 - pf).clamp_min(1e-6))).mean()
class G(nn.Module):
    def __init__(self):
        super().__init__(); self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
    def forward(self, z): return self.net(z)
d, g = D(), G(); od = torch.optim.Adam(d.parameters(), lr=1e-3); og = torch.optim.Adam(g.parameters(), lr=1e-3)
with torch.no_grad(): d.net[2].weight *= 40
for step in range(12):
    real = torch.randn(16, 8) * 0.5 + 1; fake = g(torch.randn(16, 4) * (1 if step < 5 else 60))
    ld = d(real, fake.detach()); od.zero_grad(); ld.backward(); od.step()
    lg = -d(real, fake); og.zero_grad(); lg.backward(); og.step()
    print(step, repr(ld.item()), repr(lg.item()))
