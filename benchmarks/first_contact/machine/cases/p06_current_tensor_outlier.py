# opts: --recipe current --check precision:at=1,2,5
# truth: outlier tokens (x 1e6) under current scaling (one scale per tensor): the other tokens underflow in e4m3
# source: arXiv 2409.12517 (fp8 outliers)
# modes: wf wh
import flips as C, torch, blocks, ptruth
from torch import nn
import torch.nn.functional as F
from blocks import GPT
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)); o = torch.optim.Adam(m.parameters(), 3e-3); OUT = 1e6 if C.FAULT else 0; t = ptruth.Truth(m)
for C.STEP in range(9):
    x = torch.randn(8, 32, 64)
    if OUT: x[:, 0] *= OUT
    t.before(x); y = m(x); y.retain_grad(); l = (y - x.tanh())[:, 1:].square().mean(); l.backward()
    if C.STEP in (1, 2, 5): t.after(y.grad, C.STEP)
    o.step(); o.zero_grad()
C.finish(m)
