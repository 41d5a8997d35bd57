# ranks: 2
# opts: --check again:every=1
# truth: DDP, rank 1 alone: bit 21 of one element of fc (addmm) at step 3: rank 1 named, hardware
# source: pytorch DDP tutorial; fault as arXiv 2102.11245
import flips as C, torch, torch.distributed as D
from torch import nn
D.init_process_group("gloo"); r = D.get_rank(); torch.manual_seed(r)
class Lin(nn.Linear):
    def forward(s, x):
        y = super().forward(x)  # FAULT
        if r == 1: C.poke(y, 6, 21, at=3, what="addmm on rank 1")
        return y
m = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), Lin(32, 8))); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(8): m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m, o); D.destroy_process_group()
