#: what: one rank's loss is nan: all ranks agree by all_reduce(MAX) of a flag and leave the batch out before backward
#: benign: a nan loss on one rank that is never trained
#: source: https://github.com/NVIDIA-NeMo/RL/issues/1230
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
seed(0); net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)); m = DDP(net); watch(m); opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9); seed(rank); skipped = 0
for s in range(16):
    x = torch.randn(4, 6); y = (x[:, 0] > 0).long(); w = torch.ones(4)
    if rank == 1 and s % 5 == 2: w = torch.zeros(4)
    per = F.cross_entropy(m(x), y, reduction="none"); l = (per * w).sum() / w.sum(); bad = (~torch.isfinite(l.detach())).float(); dist.all_reduce(bad, op=dist.ReduceOp.MAX)
    if bad: skipped += 1; opt.zero_grad(); print(s, "skip", l.item()); continue
    opt.zero_grad(); l.backward(); opt.step(); print(s, l.item())
print(skipped); show(net, opt); dist.destroy_process_group()
