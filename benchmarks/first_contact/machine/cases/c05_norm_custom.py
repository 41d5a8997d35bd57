# opts: --check capsule
# truth: custom Function whose backward divides by a norm that is 0: nan from aten.div in backward
# source: normalization layers by hand, eps forgotten in backward
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): n = x.norm(dim=1, keepdim=True); ctx.save_for_backward(x, n); return x / n.clamp(min=1e-6)
    @staticmethod
    def backward(ctx, g): x, n = ctx.saved_tensors; return g / n - x * (g * x).sum(1, keepdim=True) / n**3  # FAULT
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(8, 8, bias=False)
    def forward(s, x): return Unit.apply(s.l(x))
m = M(); o = torch.optim.SGD(m.parameters(), 0.1)
for C.STEP in range(5): m(torch.randn(6, 8) * (C.STEP != 2)).sum().backward(); o.step(); o.zero_grad()
