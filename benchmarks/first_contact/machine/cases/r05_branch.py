# ranks: 4
# opts: --check rank:at=2
# truth: a rank-dependent branch: the last rank uses tanh-approximate gelu: named after act, rank 3
# source: pytorch forum: if rank == 0: ... inside of forward
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class Act(nn.Module):
    def forward(s, x): return F.gelu(x, approximate="tanh" if BAD else "none")
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.act, s.b, s.c = nn.Linear(64, 128), Act(), nn.Linear(128, 64), nn.Linear(64, 4)
    def forward(s, x): return s.c(s.b(s.act(s.a(x))))
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    l = m(torch.randn(8, 64)).square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
