# ranks: 3
# opts: --check rank:at=2
# modes: wh
# truth: healthy: stochastic depth by Python's random and numpy, seeded by rank: as intended, nothing (or a question that says generator)
# source: timm-like drop path with per-rank seeds
import flips as C, torch, random, numpy as np, torch.distributed as D
from torch import nn
D.init_process_group("gloo"); r = D.get_rank(); random.seed(r); np.random.seed(r)
class Dp(nn.Module):
    def __init__(s): super().__init__(); s.g = torch.Generator().manual_seed(50 + r)
    def forward(s, x): return x * (0.9 if random.random() < 0.5 else 1.1) * float(np.random.uniform(0.9, 1.1))
torch.manual_seed(0); m = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), Dp(), nn.ReLU(), nn.Linear(64, 2))); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30): m(torch.randn(8, 32)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
