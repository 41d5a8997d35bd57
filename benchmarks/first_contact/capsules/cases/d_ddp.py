"""Two ranks under DDP: a log in the model's forward goes bad on rank 1 alone.
Source: HobbitLong/SupContrast#104; lightning threads on a nan of one rank
"""
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import kit

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = F.relu(self.a(x)) + (0 if kit.now >= 3 and rank == 1 else 0.1)
        return self.b(torch.log(h))


model = nn.parallel.DistributedDataParallel(Net())
opt = torch.optim.AdamW(model.parameters(), 1e-3)
torch.manual_seed(rank + 1)
for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = model(torch.randn(8, 6)).square().mean()
    loss.backward()
    opt.step()
    print("rank", rank, k, kit.bits(loss), kit.digest(model, opt), flush=True)
dist.destroy_process_group()
