"""DDP on two gloo ranks; the best validation loss starts at inf and is reduced by MIN, absent classes give nan in a metric.
Source: pytorch/examples imagenet (best_acc1), common all_reduce(MIN) of metrics.
Run: python -m torch.distributed.run --nproc-per-node 2 b18_ddpbest.py"""
import math, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(18)
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(rank)
best = torch.tensor(float("inf"))
losses = []
for step in range(25):
    y = torch.randint(0, 3, (32,))
    x = torch.randn(32, 8)
    x[torch.arange(32), y] += 2
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 8 == 7:
        with torch.no_grad():
            hit = (model.module(x).argmax(1) == y).float()
            per_class = torch.stack([hit[y == c].mean() for c in range(4)])  # class 3 never occurs
            current = torch.full((), float("inf")) if rank == 1 and step == 7 else loss.detach().clone()
            dist.all_reduce(current, dist.ReduceOp.MIN)
            best = torch.minimum(best, current)
ok = all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters())
print(f"rank {rank} best {best.item()} {per_class.nanmean().item()} {losses[0]} {losses[-1]}\n", end="", flush=True)
print(f"FINITE {ok}\n", end="", flush=True)
dist.destroy_process_group()
