# opts: --on-nonfinite skip
# modes: bh wf
# truth: steps 3 and 7 have an infinite batch; skip: weights, AdamW's state, EMA-free, BN buffers bitwise those of a loop that leaves these batches out (EMA and scheduler go on)
# source: docs/run.md's promise; pytorch forum "skip nan batches"
import flips as C, torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 1)); o = torch.optim.AdamW(m.parameters(), 1e-2, amsgrad=True)
for C.STEP in range(12):
    x = torch.randn(8, 8); bad = C.STEP in (3, 7)
    if bad:
        if C.A.healthy: continue
        x[2] /= 0
    m(x).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m, o)
