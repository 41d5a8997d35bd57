"""The padding mask is unsqueezed along the queries, not the keys; with -10000 nothing becomes nan.

Source: https://github.com/hyunwoongko/transformer/pull/40
Truth: arithmetic: attention weights of padded keys are not 0 for real queries
Could a tool know: partly: the mask is constant along the softmax's axis, so that it has no effect
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
    global leak
    weight = score.masked_fill(~mask, -10000.0).softmax(-1)
    leak = (weight[:, :, 0] * PAD[:, None]).sum(-1).mean().item()
    return weight @ v


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
    PAD = tokens == 0
    mask = (~PAD)[:, None, None, :] if HEALTHY else (~PAD)[:, None, :, None]
    loss = F.cross_entropy(model(tokens, mask)[:, 0], y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(step, round(loss.item(), 4))
print("end: attention on padding", round(leak, 4))
