# ranks: 2
# opts: --check rank:at=2
# truth: two ranks; rank 1 adds 1e-3 in b (a stale hot fix on one host): both named (no majority), b
# source: invented; version skew between hosts
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class B(nn.Linear):
    def forward(s, x): return super().forward(x) + (1e-3 if BAD else 0.0)
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.b, s.n, s.c = nn.Linear(64, 128), B(128, 64), nn.LayerNorm(64), nn.Linear(64, 4)
    def forward(s, x): return s.c(s.n(s.b(F.gelu(s.a(x)))))
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    l = m(torch.randn(8, 64)).square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
