# ranks: 2
# opts: --check again:every=1
# truth: healthy (pytorch tutorial ZeroRedundancyOptimizer with DDP)
import flips as C, torch, torch.distributed as D
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer as Z
D.init_process_group("gloo"); r = D.get_rank(); torch.manual_seed(r)
m = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))); o = Z(m.parameters(), torch.optim.Adam, lr=1e-3)
for C.STEP in range(6):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m); D.destroy_process_group()
