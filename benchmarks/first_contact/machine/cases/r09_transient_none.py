# modes: wf
# ranks: 3
# opts: --check rank:at=2
# truth: rank 2 flips one bit at step 6 only, not when asked: docs: ranks are asked in one later call, so silence is expected
# source: arXiv 2102.11245
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class B(nn.Linear):
    def forward(s, x):
        y = super().forward(x)
        if BAD and C.STEP == 6: C.flip(y, 3, 20)
        return y
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.b, s.n, s.c = nn.Linear(64, 128), B(128, 64), nn.LayerNorm(64), nn.Linear(64, 4)
    def forward(s, x): return s.c(s.n(s.b(F.gelu(s.a(x)))))
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    l = m(torch.randn(8, 64)).square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
