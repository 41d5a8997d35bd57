"""DDP with accumulation whose no_sync condition is off by one: the last micro-batch before the step is within no_sync, the first is not.
Each rank steps with gradients of its own.
Source: https://github.com/modelscope/FunASR/pull/3472
Truth: weights differ between the ranks.
Could a tool know: yes: replicas under DDP differ after the first step.
"""
import contextlib
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
w = torch.randn(10, 3)
torch.manual_seed(100 + rank)
accum = 3
for i in range(240):
    x = torch.randn(16, 10)
    wait = (i + 1) % accum != 0 if HEALTHY else i % accum != 0
    with model.no_sync() if wait else contextlib.nullcontext():
        loss = nn.functional.cross_entropy(model(x), (x @ w).argmax(1)) / accum
        loss.backward()
    if (i + 1) % accum == 0:
        opt.step()
        opt.zero_grad()
p = model.module[0].weight.detach().clone()
q = p.clone()
dist.all_reduce(q, op=dist.ReduceOp.MAX)
print(f"rank {rank} loss {loss.item() * accum:.4f} differs from the other rank by {(q - p).abs().max():.2e}")
dist.destroy_process_group()
