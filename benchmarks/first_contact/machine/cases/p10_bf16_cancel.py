# opts: --check precision:at=1,2,5
# truth: bf16 autocast: a linear layer on inputs with offset 500 whose mean is then taken off in the next op (bf16 result of ~500 has an ulp of 2-4): gradient of the layers below is mostly rounding
# source: pytorch forum: bf16 and unnormalized inputs
# modes: wf wh
import flips as C, torch, blocks, ptruth
from torch import nn
import torch.nn.functional as F
from blocks import GPT
torch.manual_seed(0)
class N(nn.Module):
    def __init__(s): super().__init__(); s.a, s.b, s.c = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 4)
    def forward(s, x): h = s.b(s.a(x)); h = h - h.mean(0); return s.c(F.gelu(h))
m = N(); nn.init.eye_(m.b.weight); o = torch.optim.SGD(m.parameters(), 1e-5); t = ptruth.Truth(m); B = 3000.0 if C.FAULT else 0.0
for C.STEP in range(8):
    x = torch.randn(64, 64) + B; t.before(x)
    with torch.autocast("cpu", torch.bfloat16): y = m(x)
    y.retain_grad(); y.float().square().mean().backward()
    if C.STEP in (1, 2, 5): t.after(y.grad, C.STEP)
    o.step(); o.zero_grad()
C.finish(m)
