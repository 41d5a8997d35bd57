"""A decoder is trained without any causal mask: it copies the next token.

Source: https://github.com/alex-matton/causal-transformer-decoder/issues/1
Truth: random tokens: a causal model stays at ln 39 = 3.66, this falls towards 0
Could a tool know: no: attention without a mask is what encoders do
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
    return F.scaled_dot_product_attention(q, k, v, is_causal=HEALTHY)


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
for step in range(250):
    tokens = torch.randint(1, 40, (16, 24))
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(step, round(loss.item(), 4))
print("end: loss", round(loss.item(), 4))
