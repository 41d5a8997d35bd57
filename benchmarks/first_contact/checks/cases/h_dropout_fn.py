"""Dropout in a Function that saves only the seed (as Triton's low-memory dropout), another that saves the mask."""
from _c import *
class SeedDrop(Function):
    @staticmethod
    def forward(ctx, x, p): ctx.seed = int(torch.randint(1 << 30, (1,))); ctx.p = p; return x * SeedDrop.mask(ctx.seed, x, p)
    @staticmethod
    def mask(seed, x, p): return (torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) > p).to(x) / (1 - p)
    @staticmethod
    def backward(ctx, g): return g * SeedDrop.mask(ctx.seed, g, ctx.p), None
class MaskDrop(Function):
    @staticmethod
    def forward(ctx, x, p): m = torch.bernoulli(torch.full_like(x, 1 - p)) / (1 - p); ctx.save_for_backward(m); return x * m
    @staticmethod
    def backward(ctx, g): return g * ctx.saved_tensors[0], None
class D(nn.Module):
    def __init__(self, f): super().__init__(); self.f = f
    def forward(self, x): return self.f.apply(x, .3)
m = nn.Sequential(nn.Linear(10, 32), D(SeedDrop), nn.ReLU(), nn.Linear(32, 32), D(MaskDrop), nn.Linear(32, 2)); x = torch.randn(6, 16, 10); y = torch.randint(2, (6, 16)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]))
