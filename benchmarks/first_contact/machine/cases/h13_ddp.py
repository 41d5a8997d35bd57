# ranks: 2
# opts: --check again:every=1
# truth: healthy (pytorch DDP tutorial: two ranks, no_sync accumulation, SyncBN-free BN, broadcast buffers)
import flips as C, torch, os, contextlib, torch.distributed as D
from torch import nn
D.init_process_group("gloo"); r = D.get_rank(); torch.manual_seed(r)
m = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(6):
    with m.no_sync(): m(torch.randn(8, 16)).square().mean().backward()
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m, o); D.destroy_process_group()
