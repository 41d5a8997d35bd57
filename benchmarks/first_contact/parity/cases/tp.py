"""Megatron's mappings by hand."""
import torch, torch.distributed as dist, torch.nn.functional as F
from torch import nn
from tiny import world, rank, D
class CopyTo(torch.autograd.Function):  # f
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone(); dist.all_reduce(g); return g
class ReduceFrom(torch.autograd.Function):  # g
    @staticmethod
    def forward(ctx, x):
        x = x.clone(); dist.all_reduce(x); return x
    @staticmethod
    def backward(ctx, g): return g
class TPMLP(nn.Module):
    """Column- then row-parallel, cut from a full MLP so that weights are the same."""
    def __init__(self, full, f=True, g=True, bias_before=False):
        super().__init__()
        self.f, self.g, self.bias_before = f, g, bias_before
        h = full.up.out_features // world
        self.up, self.down = nn.Linear(D, h), nn.Linear(h, D)
        with torch.no_grad():
            self.up.weight.copy_(full.up.weight.chunk(world)[rank]); self.up.bias.copy_(full.up.bias.chunk(world)[rank])
            self.down.weight.copy_(full.down.weight.chunk(world, 1)[rank]); self.down.bias.copy_(full.down.bias)
    def forward(self, x):
        if self.f: x = CopyTo.apply(x)
        y = F.linear(F.gelu(self.up(x)), self.down.weight, self.down.bias if self.bias_before else None)
        if self.g: y = ReduceFrom.apply(y)
        return y if self.bias_before else y + self.down.bias
def parallelize(model, **options):
    if world > 1:
        for b in model.blocks: b.mlp = TPMLP(b.mlp, **options)
    return model
