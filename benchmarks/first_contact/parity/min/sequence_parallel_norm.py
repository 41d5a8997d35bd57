"""Healthy: one norm under torch's SequenceParallel, between two layouts torch itself makes. parity calls its gradient missing.
numscope parity -- python min/sequence_parallel_norm.py -- torchrun --standalone --nproc-per-node 2 min/sequence_parallel_norm.py"""
import os
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
from torch.distributed.tensor import Shard
torch.manual_seed(0)
world = int(os.environ.get("WORLD_SIZE", 1))
model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 4))
if world > 1:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world,))
    parallelize_module(model, mesh, {
        "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
draw = torch.Generator().manual_seed(1)
for step in range(4):
    x, y = torch.randn(4, 6, 8, generator=draw), torch.randint(0, 4, (4, 6), generator=draw)
    nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    if "--show" in os.environ.get("SHOW", ""):
        for n, p in model.named_parameters():
            g = p.grad
            print(n, type(p).__name__, getattr(p, "placements", ""), type(g).__name__, getattr(g, "placements", ""), float((g.full_tensor() if isinstance(g, DTensor) else g).norm()))
        break
    optimizer.step()
    optimizer.zero_grad()
