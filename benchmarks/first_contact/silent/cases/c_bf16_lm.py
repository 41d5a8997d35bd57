"""A small transformer encoder for masked tokens in bfloat16 autocast, accumulation of 2, warm-up and cosine decay, clipping, tied head, 300 steps.

Healthy: the loss falls
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)


class LM(nn.Module):
    def __init__(self, n=24, d=24):
        super().__init__()
        self.emb, self.pos = nn.Embedding(n, d), nn.Parameter(0.02 * torch.randn(12, d))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 2, 48, 0.1, batch_first=True, norm_first=True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, n, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, t):
        x = self.emb(t) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


model = LM()
nn.init.normal_(model.emb.weight, std=0.1)
decay = [p for p in model.parameters() if p.dim() > 1]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=3e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 40, 0.5 * (1 + math.cos(math.pi * s / 300))))
for step in range(300):
    optimizer.zero_grad()
    for _ in range(2):
        t = (torch.randint(0, 23, (8, 1)) + torch.arange(12)) % 23
        hide = torch.rand(8, 12) < 0.2
        with torch.autocast("cpu", torch.bfloat16):
            out = model(t.masked_fill(hide, 23))
            loss = F.cross_entropy(out[hide].float(), t[hide])
        (loss / 2).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
print("end:", loss.item())
