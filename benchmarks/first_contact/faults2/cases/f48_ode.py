"""rtqichen/torchdiffeq (unstable dynamics): a cubic right-hand side leaves float32 within the fixed-step solver
TRUTH op=aten.pow|aten.mul reason=overflow of the dtype"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from torchdiffeq import odeint
class Dyn(nn.Module):
    def __init__(self):
        super().__init__(); self.n = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)); self.w = nn.Parameter(torch.eye(2))
    def forward(self, t, y):
        y = y.clamp(-10, 10) if CURED else y
        return y ** 3 @ self.w + self.n(y)  # FAULT
f = Dyn(); opt = torch.optim.Adam(f.parameters(), 1e-3); ts = torch.linspace(0, 1, 9)
for step in range(4):
    y0 = torch.randn(8, 2) * 0.3
    if step == 2: y0[3] = 6.0
    loss = odeint(f, y0, ts, method="euler").clamp(-5, 5).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), f)
