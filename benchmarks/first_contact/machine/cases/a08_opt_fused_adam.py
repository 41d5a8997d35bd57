# opts: --check again:every=1
# truth: bit 22 of exp_avg_sq of 2.weight after _fused_adam_, step 4
# source: torch.optim; fault as arXiv 2502.12340 (SDC in LLM training: in the step too)
import flips as C, torch
from torch import nn
f = torch._fused_adam_
def g(a, gr, ea, es, *r, **k): f(a, gr, ea, es, *r, **k); C.poke(es[2], 40, 22, what="_fused_adam_ exp_avg_sq of 2.weight")
torch._fused_adam_ = g
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)); o = torch.optim.Adam(m.parameters(), 1e-3, fused=True)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward()
    o.step()  # FAULT
    o.zero_grad()
C.finish(m, o)
