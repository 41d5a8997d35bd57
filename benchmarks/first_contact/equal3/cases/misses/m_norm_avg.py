"""Sequence parallel in small: each of two ranks has half of the positions, the norm's gradient is a part on each. --avg: these are averaged where they should be summed (gpt-neox 1259)."""
import os, sys

import torch
import torch.distributed as dist
from torch import nn

world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(step)).chunk(world, 1)[rank]
    ((model(x) - 1).square().sum() / 96).backward()
    if world > 1:
        for name, p in model.named_parameters():
            dist.all_reduce(p.grad)
            if "--avg" in sys.argv and name.startswith("0."):
                p.grad /= world
    opt.step()
    opt.zero_grad()
    print(rank, step, f"{sum(p.detach().double().sum().item() for p in model.parameters()):.9f}", flush=True)
