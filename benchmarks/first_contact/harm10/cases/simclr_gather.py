#: what: SimCLR over two ranks: an autograd Function gathers embeddings with gradient, self-similarities at -inf, SyncBN-free projector; temperature learned
#: benign: -inf on the diagonal
#: source: https://github.com/Spijkervet/SimCLR/issues/33
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); o = [torch.zeros_like(x) for _ in range(2)]; dist.all_gather(o, x.contiguous()); return tuple(o)
    @staticmethod
    def backward(ctx, *g): x, = ctx.saved_tensors; out = torch.zeros_like(x); out[:] = g[dist.get_rank()]; return out
seed(0); net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 8)); t = nn.Parameter(torch.tensor(2.0)); net.t = t; m = DDP(net, broadcast_buffers=False, gradient_as_bucket_view=True, find_unused_parameters=True); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
seed(10 + rank)
for s in range(12):
    x = torch.randn(4, 8); a, b = (F.normalize(m(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2)) if False else (lambda z: (F.normalize(z[:4], dim=1), F.normalize(z[4:], dim=1)))(m(torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])))
    z = torch.cat([*Gather.apply(a), *Gather.apply(b)]); sim = (z @ z.T) * t.detach().exp(); sim = sim.masked_fill(torch.eye(16, dtype=torch.bool), float("-inf")); l = F.cross_entropy(sim, (torch.arange(16) + 8) % 16); opt.zero_grad(); l.backward(); opt.step(); print(s, l.item())
show(net, opt); dist.destroy_process_group()
