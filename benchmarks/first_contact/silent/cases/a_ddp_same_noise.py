"""Diffusion on two ranks: data differ, but all ranks draw the same noise and time steps from one seed.

Run: torchrun, 2 ranks
Source: https://github.com/mlcommons/training/pull/844
Truth: the ranks' noise is equal
Could a tool know: partly: equal random tensors on both ranks while the data differ
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

T = 50
bar = (1 - torch.linspace(1e-4, 0.1, T)).cumprod(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 8)
        self.net = nn.Sequential(nn.Linear(10, 48), nn.SiLU(), nn.Linear(48, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
shard = torch.Generator().manual_seed(7 + rank)
torch.manual_seed(42 + rank if HEALTHY else 42)
for step in range(150):
    angle = torch.rand(64, generator=shard) * 6.283
    x0 = torch.stack([angle.cos(), angle.sin()], 1)
    noise, t = torch.randn(64, 2), torch.randint(0, T, (64,))
    x = bar[t].sqrt()[:, None] * x0 + (1 - bar[t]).sqrt()[:, None] * noise
    loss = F.mse_loss(model(x, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and rank == 0:
        print(step, round(loss.item(), 4))
both = [torch.empty(64, 2) for _ in range(2)]
dist.all_gather(both, noise)
if rank == 0:
    print("end: ranks' noise is equal", torch.equal(*both))
dist.destroy_process_group()
