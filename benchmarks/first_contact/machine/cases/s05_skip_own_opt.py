# opts: --on-nonfinite skip
# modes: bh wf
# truth: own optimizer with a counter of its own and states (Lion-like, bias correction) + clip_grad_norm_ (which spreads nan over all gradients): equal to the twin that leaves the batch out
# source: lucidrains/lion-pytorch with a step counter; clip_grad_norm_ docs
import flips as C, torch
from torch import nn
class Own(torch.optim.Optimizer):
    def __init__(s, p, lr): super().__init__(p, dict(lr=lr)); s.t = 0
    @torch.no_grad()
    def step(s, closure=None):
        s.t += 1
        for g in s.param_groups:
            for p in g["params"]:
                st = s.state[p]; m = st.setdefault("m", torch.zeros_like(p)); st["k"] = st.get("k", 0) + 1
                p.add_((m.lerp(p.grad, 0.1)).sign(), alpha=-g["lr"] / (1 - 0.9 ** s.t)); m.lerp_(p.grad, 0.05)
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)); o = Own(m.parameters(), 1e-3)
for C.STEP in range(10):
    x = torch.randn(8, 8)
    if C.STEP in (0, 5):
        if C.A.healthy: continue
        x[0, 0] = float("nan")
    m(x).square().mean().backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); o.step(); o.zero_grad()
C.finish(m, o, o.t)
