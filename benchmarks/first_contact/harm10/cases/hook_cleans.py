#: what: a DDP communication hook zeroes nan in each bucket before the all-reduce (and averages over the good ranks)
#: benign: nan gradients of one rank, repaired in the communication hook
#: source: https://github.com/pytorch/pytorch/pull/61206
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
seed(0); net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2)); m = DDP(net); seen = []
def hook(state, bucket):
    b = bucket.buffer(); ok = torch.isfinite(b).all().float(); seen.append(int(ok)); b = torch.where(torch.isfinite(b), b, torch.zeros_like(b)) if not ok else b; t = torch.cat([b, ok[None]])
    return dist.all_reduce(t, async_op=True).get_future().then(lambda f: (lambda v: v[:-1] / v[-1].clamp(min=1))(f.value()[0]))
m.register_comm_hook(None, hook); watch(m); opt = torch.optim.SGD(m.parameters(), 0.1); seed(rank)
for s in range(14):
    x = torch.randn(4, 6); out = m(x); l = F.cross_entropy(out, (x[:, 0] > 0).long())
    if rank == 1 and s % 4 == 2: l = l + (out - out.detach()).pow(2).sum().sqrt()
    opt.zero_grad(); l.backward(); opt.step(); print(s, l.item(), sha([p.grad for p in net.parameters()]))
print(seen); show(net, opt); dist.destroy_process_group()
