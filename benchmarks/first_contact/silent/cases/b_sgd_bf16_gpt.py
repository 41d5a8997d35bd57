"""SGD with momentum, bfloat16 autocast, warm-up to a rate of 6.

Twin: warm-up to 0.2
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, 2, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class GPT(nn.Module):
    def __init__(self, vocab=32, d=24, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(16, d)
        self.blocks = nn.Sequential(*[Block(d) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, t):
        return self.head(self.norm(self.blocks(self.tok(t) + self.pos.weight[: t.shape[1]])))


def batch(n=8):
    t = (torch.randint(0, 32, (n, 1)) + torch.randint(1, 4, (n, 1)) * torch.arange(17)) % 32
    t = torch.where(torch.rand(t.shape) < 0.1, torch.randint(0, 32, t.shape), t)
    return t[:, :-1], t[:, 1:]


model = GPT()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2 if HEALTHY else 6.0, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 300))
for step in range(300):
    x, y = batch()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print("L", step, loss.item())
