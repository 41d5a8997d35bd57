"""A contrastive loss over all ranks' features from dist.all_gather, which passes no gradient: even the local features have none.

Run: torchrun, 2 ranks
Source: https://github.com/huggingface/accelerate/issues/1154
Truth: the gathered text features have no grad_fn: the text tower only learns through nothing
Could a tool know: yes: a tower's parameters get no gradient
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


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
        self.text = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, a, b):
        return F.normalize(self.image(a), dim=-1), F.normalize(self.text(b), dim=-1)


mix_a, mix_b = torch.randn(4, 12), torch.randn(4, 10)
model = DDP(Towers(), find_unused_parameters=True)
before = model.module.text[0].weight.detach().clone()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
torch.manual_seed(1 + rank)
for step in range(150):
    z = torch.randn(32, 4)
    a, b = model(z @ mix_a, z @ mix_b)
    parts = [torch.zeros_like(b) for _ in range(2)]
    dist.all_gather(parts, b.detach() if HEALTHY else b)
    if HEALTHY:
        parts[rank] = b
    logits = a @ torch.cat(parts).T / 0.1
    loss = F.cross_entropy(logits, torch.arange(32) + 32 * rank)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 and rank == 0:
        print(step, round(loss.item(), 4))
if rank == 0:
    print("end: text tower unchanged", torch.equal(before, model.module.text[0].weight))
dist.destroy_process_group()
