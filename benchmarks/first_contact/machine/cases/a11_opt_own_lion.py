# opts: --check again:every=1
# truth: bit 26 of state m of 0.weight after lerp_ in an own Lion, step 4 (github lucidrains/lion-pytorch)
# source: torch.optim; fault as arXiv 2502.12340 (SDC in LLM training: in the step too)
import flips as C, torch
from torch import nn
class Lion(torch.optim.Optimizer):
    def __init__(s, p, lr): super().__init__(p, dict(lr=lr))
    @torch.no_grad()
    def step(s, closure=None):
        for gr in s.param_groups:
            for p in gr["params"]:
                st = s.state[p]
                if not st: st["m"] = torch.zeros_like(p)
                u = st["m"].lerp(p.grad, 0.1).sign_()
                p.add_(u, alpha=-gr["lr"])
                st["m"].lerp_(p.grad, 0.01)  # HERE
                if p.shape == (32, 16): C.poke(st["m"], 101, 26, what="Lion m of 0.weight")
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)); o = Lion(m.parameters(), 1e-3)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward()
    o.step()  # FAULT
    o.zero_grad()
C.finish(m, o)
