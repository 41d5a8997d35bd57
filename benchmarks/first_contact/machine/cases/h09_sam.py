# opts: --check again:every=1
# truth: healthy (github davda54/sam: perturb, second forward and backward, restore, base step)
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
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4)); o = SAM(m.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
for C.STEP in range(7):
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,)); nn.functional.cross_entropy(m(x), y).backward(); o.first(); nn.functional.cross_entropy(m(x), y).backward(); o.step(); o.zero_grad()
C.finish(m)
