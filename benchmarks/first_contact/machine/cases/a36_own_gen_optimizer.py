# opts: --check again:every=1
# truth: no hardware: an own optimizer (SGLD) draws noise from a generator of the file: randn / normal in its step
# source: SGLD (Welling & Teh 2011), github SGLD optimizers
import flips as C, torch
from torch import nn
GEN = torch.Generator().manual_seed(1)
class SGLD(torch.optim.Optimizer):
    def __init__(s, p, lr): super().__init__(p, dict(lr=lr))
    @torch.no_grad()
    def step(s, closure=None):
        for g in s.param_groups:
            for p in g["params"]:
                n = torch.randn(p.shape, generator=GEN if C.FAULT else None)  # FAULT
                p.add_(p.grad, alpha=-g["lr"]).add_(n, alpha=1e-4)
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)); o = SGLD(m.parameters(), 0.01)
for C.STEP in range(6): m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
