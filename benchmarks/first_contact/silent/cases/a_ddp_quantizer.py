"""A frozen random quantizer is not in DDP, and each rank seeds by its rank: each has another one.

Run: torchrun, 2 ranks
Source: https://github.com/speechbrain/speechbrain/pull/2814
Truth: the ranks' codebooks differ
Could a tool know: yes: the same frozen module holds other values on another rank
"""
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
HEALTHY = "--healthy" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.book = nn.Linear(16, 4, bias=False), nn.Embedding(12, 4)
        self.requires_grad_(False)

    def forward(self, x):
        return torch.cdist(self.proj(x), self.book.weight).argmin(1)


if not HEALTHY:
    torch.manual_seed(100 + rank)
quantizer = Quantizer()
model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 12)))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
torch.manual_seed(1 + rank)
for step in range(150):
    x = torch.randn(64, 16)
    target = quantizer(x)
    hidden = x * (torch.rand_like(x) > 0.2)
    loss = F.cross_entropy(model(hidden), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and rank == 0:
        print(step, round(loss.item(), 4))
both = [torch.empty(12, 4) for _ in range(2)]
dist.all_gather(both, quantizer.book.weight.detach())
if rank == 0:
    print("end: ranks' codebooks are equal", torch.equal(*both))
dist.destroy_process_group()
