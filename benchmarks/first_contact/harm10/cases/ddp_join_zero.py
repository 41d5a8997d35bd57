#: what: DDP and ZeroRedundancyOptimizer in one Join context, rank 1 has fewer batches; consolidated optimizer state saved by rank 0
#: source: https://runebook.dev/en/docs/pytorch/distributed.algorithms.join/torch.distributed.algorithms.Join.notify_join_context
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
seed(0); net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)); m = DDP(net); watch(m); opt = ZeroRedundancyOptimizer(m.parameters(), torch.optim.Adam, lr=1e-2)
seed(rank)
with Join([m, opt]):
    for s in range(5 + 3 * (1 - rank)):
        x = torch.randn(4, 6); l = F.cross_entropy(m(x), (x[:, 0] > 0).long()); opt.zero_grad(); l.backward(); opt.step(); print(s, l.item())
opt.consolidate_state_dict(0)
if rank == 0: sd = opt.state_dict(); print(sha({k: v for k, v in sd["state"].items()})); torch.save(net.state_dict(), "net.pt")
show(net); dist.destroy_process_group()
