# opts: --check again:every=1
# truth: bit 11 of a bfloat16 element of an addmm inside of Muons Newton-Schulz, step 4
# source: torch.optim; fault as arXiv 2502.12340 (SDC in LLM training: in the step too)
import flips as C, torch
from torch import nn
f = torch.addmm
def g(*r, **k):
    y = f(*r, **k)
    C.poke(y, 3, 11, what="addmm inside Newton-Schulz")
    return y
torch.addmm = g
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)); o = torch.optim.Muon([p for p in m.parameters() if p.ndim == 2], 1e-3)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward()
    o.step()  # FAULT
    o.zero_grad()
C.finish(m, o)
