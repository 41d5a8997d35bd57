"""baker-laboratory/rf_diffusion_all_atom#40: acos of an unclamped dot product of normalised vectors
TRUTH op=aten.acos reason=argument outside the function's domain"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Coord(nn.Module):
    def __init__(self):
        super().__init__(); self.f = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 9))
    def forward(self, x): return x + 0.1 * self.f(x.flatten(1)).view_as(x)
def get_ang(a, b, c):
    u, v = F.normalize(a - b, dim=-1), F.normalize(c - b, dim=-1)
    d = (u * v).sum(-1)
    if CURED: d = d.clamp(-1 + 1e-6, 1 - 1e-6)
    return torch.acos(d)  # FAULT
net = Coord(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(5):
    x = torch.randn(32, 3, 3)
    if step == 2:
        k = torch.rand(32, 1) + 0.5; x[:, 2] = x[:, 1] + k * (x[:, 0] - x[:, 1])   # collinear atoms
    y = net(x) if step != 2 else net(x) * 0 + x + net(x).mean() * 0
    ang = get_ang(y[:, 0], y[:, 1], y[:, 2])
    loss = (ang - 1.9).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
