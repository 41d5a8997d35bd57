# opts: --check again:every=1
# truth: healthy (pytorch tutorial "compiled optimizer": torch.compile of opt.step, tensor lr with a scheduler)
import sys
import flips as C, torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)); o = torch.optim.Adam(m.parameters(), torch.tensor(1e-3)); s = torch.optim.lr_scheduler.LinearLR(o, total_iters=5)
@torch.compile(fullgraph=False)
def step(): o.step(); s.step()
for C.STEP in range(5):
    m(torch.randn(8, 16)).square().mean().backward(); step(); o.zero_grad()
C.finish(m, o)
