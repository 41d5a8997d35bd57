# ranks: 3
# opts: --check rank:at=2
# truth: rank 2 alone runs its forward under bfloat16 autocast entered by the script around the model (an env flag on one host): a output differs, rank 2
# source: pytorch forum: autocast enabled on one node by a per-host config
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.b, s.n, s.c = nn.Linear(64, 128), nn.Linear(128, 64), nn.LayerNorm(64), nn.Linear(64, 4)
    def forward(s, x): return s.c(s.n(s.b(F.gelu(s.a(x)))))
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    
    with torch.autocast('cpu', torch.bfloat16, enabled=BAD): l = m(torch.randn(8, 64)).float().square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
