"""The loss is computed on ddp.module: gradients are never averaged.

Run: torchrun, 2 ranks
Source: https://github.com/OpenTSLM/OpenTSLM/pull/49
Truth: the ranks' weights differ at the end
Could a tool know: yes
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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x, y):
        return self.compute_loss(x, y)

    def compute_loss(self, x, y):
        return F.cross_entropy(self.body(x), y)


centers = torch.randn(10, 20)
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(1 + rank)
for step in range(150):
    y = torch.randint(0, 10, (32,))
    x = centers[y] + torch.randn(32, 20)
    loss = model(x, y) if HEALTHY else model.module.compute_loss(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and rank == 0:
        print(step, round(loss.item(), 4))
both = [torch.empty(32, 20) for _ in range(2)]
dist.all_gather(both, model.module.body[0].weight.detach())
if rank == 0:
    print("end: ranks' weights are equal", torch.equal(*both))
dist.destroy_process_group()
