# ranks: 4
# opts: --check rank:at=2
# truth: rank 3 flips bit 14 of the input gradient of b in each backward; forward equal: named in backward (gradient of gelu/a output), rank 3
# source: arXiv 2102.11245
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class Id(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w): ctx.save_for_backward(x, w); return x @ w.t()
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors; gx = g @ w
        if BAD: C.flip(gx, 11, 14)
        return gx, g.t() @ x
class B(nn.Module):
    def __init__(s): super().__init__(); s.weight = nn.Parameter(torch.randn(64, 128) / 11)
    def forward(s, x): return Id.apply(x, s.weight)
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.b, s.n, s.c = nn.Linear(64, 128), B(), nn.LayerNorm(64), nn.Linear(64, 4)
    def forward(s, x): return s.c(s.n(s.b(F.gelu(s.a(x)))))
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    l = m(torch.randn(8, 64)).square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
