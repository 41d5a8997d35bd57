# opts: --check capsule
# truth: inverse of a nearly singular matrix... cholesky-free: linalg.inv gives huge, det backward: nan/inf in slogdet of 0
# source: normalizing flows with log det (Glow issues)
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(8, 9)
    def forward(s, x): return torch.slogdet(s.l(x).view(-1, 3, 3))[1]  # FAULT
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(4):
    x = torch.randn(4, 8)
    if C.STEP == 2:
        with torch.no_grad(): m.l.weight.zero_(); m.l.bias.fill_(1)
    m(x).mean().backward(); o.step(); o.zero_grad()
