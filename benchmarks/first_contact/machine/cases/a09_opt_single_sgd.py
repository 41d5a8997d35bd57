# opts: --check again:every=1
# truth: bit 12 of momentum_buffer of 2.weight after add_, step 4, single tensor SGD
# source: torch.optim; fault as arXiv 2502.12340 (SDC in LLM training: in the step too)
import flips as C, torch
from torch import nn
f = torch.Tensor.add_
def g(a, *r, **k):
    f(a, *r, **k)
    if a.shape == (4, 32) and "alpha" in k and k["alpha"] == 1: C.poke(a.data, 5, 12, what="momentum_buffer of 2.weight")
    return a
torch.Tensor.add_ = g
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)); o = torch.optim.SGD(m.parameters(), 1e-2, momentum=0.9, foreach=False)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward()
    o.step()  # FAULT
    o.zero_grad()
C.finish(m, o)
