"""masked_fill(mask, 1e-9) in place of -1e9: the mask has no effect, the future is seen.

Source: https://github.com/awslabs/gluonts/pull/1401
Truth: a causal model cannot know random tokens ahead: the twin stays at ln 39 = 3.66, this falls far below
Could a tool know: partly: the fill value is amid of the scores
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def merge(y, b, t, d):
    return y.transpose(1, 2).reshape(b, t, d)


def attend(q, k, v, mask):
    score = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
    return score.masked_fill(~mask, -1e9 if HEALTHY else 1e-9).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.n1, self.n2, self.qkv, self.out = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, 4, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.out(merge(attend(q, k, v, mask), b, t, d))
        return x + self.ff(self.n2(x))


class Model(nn.Module):
    def __init__(self, out, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(40, d), nn.Embedding(24, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, out)

    def forward(self, tokens, mask=None):
        x = self.tok(tokens) + self.pos.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


model = Model(40)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
mask = torch.ones(23, 23, dtype=torch.bool).tril()
for step in range(250):
    tokens = torch.randint(1, 40, (16, 24))
    logits = model(tokens[:, :-1], mask)
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(step, round(loss.item(), 4))
print("end: loss", round(loss.item(), 4))
