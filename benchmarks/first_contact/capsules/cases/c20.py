"""Healthy: DDP on two ranks with accumulation under no_sync.
Source: pytorch/examples ddp
"""
import contextlib
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import kit

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 4)))
opt = torch.optim.AdamW(model.parameters(), 1e-2)
torch.manual_seed(rank + 1)
for k in range(7):
    opt.zero_grad()
    for m in range(2):
        with model.no_sync() if m == 0 else contextlib.nullcontext():
            loss = F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))
            loss.backward()
    opt.step()
    print("rank", rank, k, kit.bits(loss), kit.digest(model, opt), flush=True)
dist.destroy_process_group()
