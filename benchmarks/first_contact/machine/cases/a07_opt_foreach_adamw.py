# opts: --check again:every=1
# truth: bit 17 of 0.weight after _foreach_addcdiv_, step 4, foreach AdamW
# source: torch.optim; fault as arXiv 2502.12340 (SDC in LLM training: in the step too)
import flips as C, torch
from torch import nn
f = torch._foreach_addcdiv_
def g(a, *r, **k): f(a, *r, **k); C.poke(a[0].data, 33, 17, what="_foreach_addcdiv_ weight 0.weight")
torch._foreach_addcdiv_ = g
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)); o = torch.optim.AdamW(m.parameters(), 1e-3, foreach=True)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward()
    o.step()  # FAULT
    o.zero_grad()
C.finish(m, o)
