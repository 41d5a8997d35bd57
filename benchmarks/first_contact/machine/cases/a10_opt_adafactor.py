# opts: --check again:every=1
# truth: bit 24 of row_var of 2.weight after lerp_, step 4, Adafactor
# source: torch.optim; fault as arXiv 2502.12340 (SDC in LLM training: in the step too)
import flips as C, torch
from torch import nn
f = torch.Tensor.lerp_
def g(a, *r, **k):
    f(a, *r, **k)
    if a.dim() == 2 and a.shape[0] == 4: C.poke(a.data, 2, 24, what="row_var of 2.weight")
    return a
torch.Tensor.lerp_ = g
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)); o = torch.optim.Adafactor(m.parameters(), 1e-2, foreach=False)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward()
    o.step()  # FAULT
    o.zero_grad()
C.finish(m, o)
