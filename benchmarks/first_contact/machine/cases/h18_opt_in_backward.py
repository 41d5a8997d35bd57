# opts: --check again:every=1
# truth: healthy (pytorch tutorial: optimizer step in backward by post-accumulate-grad hooks)
import flips as C, torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)); O = {p: torch.optim.Adam([p], 1e-3, foreach=False) for p in m.parameters()}
def hook(p): O[p].step(); O[p].zero_grad()
for p in O: p.register_post_accumulate_grad_hook(hook)
for C.STEP in range(6): m(torch.randn(8, 16)).square().mean().backward()
C.finish(m, list(O.values()))
