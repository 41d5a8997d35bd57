# ranks: 3
# opts: --check rank:at=2
# truth: rank 2 drops with p=0.2 where others have 0.1 (config of one host) in a net with batch norm (own running statistics broadcast) and dropout: drop named, rank 2
# source: pytorch forum: config files that differ by host
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.bn, s.drop, s.c = nn.Linear(64, 128), nn.BatchNorm1d(128), nn.Dropout(0.2 if BAD else 0.1), nn.Linear(128, 4)
    def forward(s, x): return s.c(s.drop(F.relu(s.bn(s.a(x)))))
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    l = m(torch.randn(8, 64)).square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
