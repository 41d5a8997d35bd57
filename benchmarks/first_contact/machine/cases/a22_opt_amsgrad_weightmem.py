# opts: --check again:every=1
# truth: a bit of 0.weight flips in memory between the step and the next forward (no calculation): outside of what is done again
# source: torch.optim; fault as arXiv 2502.12340 (SDC in LLM training: in the step too)
import flips as C, torch
from torch import nn
from torch import optim
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)); o = torch.optim.AdamW(m.parameters(), 1e-3, amsgrad=True)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward()
    o.step()  # FAULT
    o.zero_grad(); C.poke(m[0].weight.data, 9, 21, what="0.weight at rest")
C.finish(m, o)
