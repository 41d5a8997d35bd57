# opts: --check precision:at=1,5
# truth: one layer of three in E5M2 (all operands), the others in e4m3/HYBRID by precision.convert: that layer has the largest share of the error; error 2-3 times of the twin's
# source: arXiv 2209.05433 (e4m3 for forward, e5m2 for gradients)
# modes: wf wh
import flips as C, torch, ptruth
from torch import nn
from numscope import precision
torch.manual_seed(0); m = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 64)); o = torch.optim.SGD(m.parameters(), 1e-2); t = ptruth.Truth(m)
precision.convert(m, precision.CurrentScaling(), layers=["0", "4"]); precision.convert(m, precision.CurrentScaling(fp8_format="E5M2" if C.FAULT else "HYBRID"), layers=["2"])
for C.STEP in range(8):
    x = torch.randn(256, 64); t.before(x); y = m(x); y.retain_grad(); (y - x.tanh()).square().mean().backward()
    if C.STEP in (1, 5): t.after(y.grad, C.STEP)
    o.step(); o.zero_grad()
C.finish(m)
