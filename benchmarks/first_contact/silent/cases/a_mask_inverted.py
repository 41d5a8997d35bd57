"""The boolean mask of scaled_dot_product_attention is inverted: only padding is attended.

Source: https://github.com/InseeFrLab/torchTextClassifiers/pull/92
Truth: the twin learns, this stays near the loss of guessing from the tokens pooled
Could a tool know: partly: rows of the mask that have only padding, but which tokens are padding is not known
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
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


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


def batch(n=16):
    tokens, length = torch.randint(1, 40, (n, 24)), torch.randint(4, 25, (n,))
    tokens[torch.arange(24) >= length[:, None]] = 0
    return tokens, ((tokens > 0) & (tokens < 8)).any(1).long()


model = Model(2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(200):
    tokens, y = batch()
    pad = tokens == 0
    mask = ~pad if HEALTHY else pad | (torch.arange(24) == 23)
    logits = model(tokens, mask[:, None, None, :])[:, 0]
    loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(step, round(loss.item(), 4))
with torch.no_grad():
    tokens, y = batch(512)
    keep = tokens != 0 if HEALTHY else (tokens == 0) | (torch.arange(24) == 23)
    print("end: accuracy", (model(tokens, keep[:, None, None, :])[:, 0].argmax(1) == y).float().mean().item())
