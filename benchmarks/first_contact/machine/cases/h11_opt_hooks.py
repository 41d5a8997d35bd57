# opts: --check again:every=1
# truth: healthy (torch.optim hooks: step_pre hook adds noise from the default generator, post hook clamps weights and counts; a count is printed)
import flips as C, torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)); o = torch.optim.NAdam(m.parameters(), 1e-3); N = {"pre": 0, "post": 0}
def pre(o, a, k):
    N["pre"] += 1
    for g in o.param_groups:
        for p in g["params"]: p.grad.add_(torch.randn_like(p), alpha=0.01)
@torch.no_grad()
def post(o, a, k):
    N["post"] += 1
    for g in o.param_groups:
        for p in g["params"]: p.clamp_(-0.3, 0.3)
o.register_step_pre_hook(pre); o.register_step_post_hook(post)
for C.STEP in range(7):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
print(N); C.finish(m, o, N)
