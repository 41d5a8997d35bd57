"""A small language model, its data, and what each script prints. No part of it knows numscope."""
import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

V, D, H, T, B = 61, 32, 4, 16, 8
WORLD, RANK = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
STEPS = int(os.environ.get("STEPS", 30))


def arg(name, default=""):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def batch(step):
    g = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(0, V, (B, T + 1), generator=g)
    lengths = torch.randint(4, T + 1, (B,), generator=g)
    labels = tokens[:, 1:].clone()
    labels[torch.arange(T)[None] >= lengths[:, None]] = -100
    return tokens[:, :-1].contiguous(), labels


def ce(logits, labels, reduction="sum"):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-100, reduction=reduction)


def heads(x):
    return x.unflatten(-1, (-1, D // H)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def attend(self, x):
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    def forward(self, x):
        x = x + self.o(self.attend(self.norm1(x)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LM(nn.Module):
    def __init__(self, layers=2, tied=False, block=Block, recompute=False):
        super().__init__()
        self.embed, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.recompute = recompute

    def trunk(self, tokens, positions=None):
        if positions is None:
            positions = torch.arange(tokens.shape[1])
        x = self.embed(tokens) + self.pos(positions)
        for b in self.blocks:
            x = torch.utils.checkpoint.checkpoint(b, x, use_reentrant=False) if self.recompute else b(x)
        return self.norm(x)

    def forward(self, tokens, positions=None):
        return self.head(self.trunk(tokens, positions))


def total(loss_sum, count, group=None):
    """The loss of the whole batch, whatever the script has trained on; for the print alone."""
    both = torch.tensor([float(loss_sum), float(count)], dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(both, group=group)
    return (both[0] / both[1]).item()


def report(step, loss, model):
    sha = hashlib.sha256()
    for p in model.parameters():
        p = p.detach()
        p = p.to_local() if hasattr(p, "to_local") else p
        sha.update(p.float().contiguous().numpy().tobytes())
    print(f"r{RANK} step {step} loss {loss:.9f} {sha.hexdigest()[:12]}", flush=True)
