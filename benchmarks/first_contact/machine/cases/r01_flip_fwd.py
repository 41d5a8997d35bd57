# ranks: 3
# opts: --check rank:at=2
# truth: rank 2 flips bit 12 of element 7 of b's result in each call (a broken unit): b output named, rank 2
# source: arXiv 2102.11245; Llama 3 paper (a node with SDC)
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.b, s.n, s.c = nn.Linear(64, 128), nn.Linear(128, 64), nn.LayerNorm(64), nn.Linear(64, 4)
    def forward(s, x):
        y = s.a(x)
        y = s.b(F.gelu(y)); return s.c(s.n(y))
class Bad(nn.Linear):
    def forward(s, x):
        y = super().forward(x)
        if BAD: C.flip(y, 7, 12)
        return y
def mk():
    t = N0(); t.b = Bad(128, 64); return t
N0 = Net; Net = mk
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    l = m(torch.randn(8, 64)).square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
