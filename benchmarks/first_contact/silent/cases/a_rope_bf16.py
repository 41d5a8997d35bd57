"""RoPE's positions and angles are computed in bfloat16: neighbouring positions get the same rotation.

Source: https://github.com/huggingface/transformers/pull/29285
Truth: arithmetic: torch.arange(512) in bfloat16 has far fewer than 512 values; counted at the end
Could a tool know: yes: an arange in bfloat16 that repeats its values
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

BASE = 256
def angles(t, d):
    kind = torch.float32 if HEALTHY else torch.bfloat16
    inv = (1.0 / 1000 ** (torch.arange(0, d, 2).float() / d)).to(kind)
    a = torch.outer((torch.arange(t) + BASE).to(kind), inv)
    return a.cos().bfloat16(), a.sin().bfloat16()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v, mask):
    cos, sin = angles(q.shape[2], q.shape[3])
    return F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)


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
        self.tok = nn.Embedding(40, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, out)

    def forward(self, tokens, mask=None):
        x = self.tok(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


model = Model(40)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(200):
    half = torch.randint(1, 40, (16, 12))
    tokens = torch.cat([half, half], 1)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits[:, 11:].flatten(0, 1).float(), tokens[:, 12:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(step, round(loss.item(), 4))
cos, _ = angles(128, 8)
print("end: different rotations of 128 positions", len({tuple(r) for r in cos.float().tolist()}), "loss", round(loss.item(), 3))
