# opts: --check capsule
# truth: rsqrt of a negative variance picked by index (indices among operands: not halved): nan in aten.rsqrt
# source: learned variances without softplus
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.e = nn.Embedding(50, 8); s.v = nn.Parameter(torch.linspace(-0.01, 1, 50))
    def forward(s, i): return s.e(i) * s.v[i].rsqrt()[..., None]  # FAULT
m = M(); o = torch.optim.Adam(m.parameters())
for C.STEP in range(5): m(torch.randint(1, 50, (4, 7)) * (torch.arange(7) != 3 if C.STEP == 2 else 1)).square().mean().backward(); o.step(); o.zero_grad()
