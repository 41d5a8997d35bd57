# source: davda54/sam
# opts: --check again:every=1
# truth: bit 22 of one element of linear 3 in the SECOND forward of step 4 (of SAM): hardware, addmm
import flips as C, torch
from torch import nn
class SAM(torch.optim.Optimizer):
    def __init__(s, p, base, rho=0.05, **k): super().__init__(p, dict(rho=rho, **k)); s.base = base(s.param_groups, **k); s.param_groups = s.base.param_groups
    @torch.no_grad()
    def first(s):
        n = torch.stack([p.grad.norm() for g in s.param_groups for p in g["params"]]).norm()
        for g in s.param_groups:
            for p in g["params"]: s.state[p]["old"] = p.clone(); p.add_(p.grad * 0.05 / (n + 1e-12))
        s.zero_grad()
    @torch.no_grad()
    def step(s, closure=None):
        for g in s.param_groups:
            for p in g["params"]: p.copy_(s.state[p]["old"])
        s.base.step()
N = 0
class Lin(nn.Linear):
    def forward(s, x):
        global N
        y = super().forward(x); N += 1  # FAULT
        return C.poke(y, 6, 22, what="addmm of 3, second forward") if N % 2 == 0 else y
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), Lin(32, 4)); o = SAM(m.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
for C.STEP in range(7):
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,)); nn.functional.cross_entropy(m(x), y).backward(); o.first(); nn.functional.cross_entropy(m(x), y).backward(); o.step(); o.zero_grad()
C.finish(m)
