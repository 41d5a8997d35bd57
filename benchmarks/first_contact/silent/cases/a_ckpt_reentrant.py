"""Reentrant checkpointing behind frozen embeddings: the blocks get no gradient, only the head learns.

Source: https://github.com/huggingface/transformers/issues/21381
Truth: the blocks' weights are bit for bit as at the start
Could a tool know: yes: trainable parameters of modules that run get no gradient
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import warnings

from torch.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, 32).requires_grad_(False)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3))
        self.head = nn.Linear(32, 2)

    def forward(self, t):
        x = self.emb(t)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=not HEALTHY)
        return self.head(x.mean(1))


model = Net()
before = model.blocks[1][1].weight.detach().clone()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
for step in range(200):
    t = torch.randint(0, 40, (32, 10))
    loss = F.cross_entropy(model(t), ((t < 8).sum(1) > 1).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: block unchanged", torch.equal(before, model.blocks[1][1].weight))
