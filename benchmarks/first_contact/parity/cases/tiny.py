"""What the cases share: a small GPT, a convnet-free data stream, ranks. Nothing of numscope."""
import os, sys
import torch, torch.distributed as dist, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
V, D, T = 64, 32, 12
B = "--b" in sys.argv  # the second layout, where it has no ranks of its own
def init():
    if world > 1 and not dist.is_initialized():
        dist.init_process_group("gloo")
class Attention(nn.Module):
    def __init__(self, d=D, heads=4):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
class MLP(nn.Module):
    def __init__(self, d=D):
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        return self.down(F.gelu(self.up(x)))
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(D), Attention(), nn.LayerNorm(D), MLP()
    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))
class GPT(nn.Module):
    def __init__(self, tie=False, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)
        if tie:
            self.head.weight = self.tok.weight
    def forward(self, ids, offset=0):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device) + offset)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))
def batches(n=4, size=8, seed=1, ragged=False):
    """Global batches (ids, labels); ragged: answers of other lengths, the rest is -100."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        ids = torch.randint(0, V, (size, T + 1), generator=g)
        labels = ids[:, 1:].clone()
        if ragged:
            for i in range(size):
                labels[i, 1 + (i * 11) // size:] = -100
        yield ids[:, :-1].contiguous(), labels
def mine(*tensors):
    return [t.chunk(world)[rank] for t in tensors]
def ce(logits, labels, reduction="mean"):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-100, reduction=reduction)
