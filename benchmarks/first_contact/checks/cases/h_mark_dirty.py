"""In-place leaky ReLU with mark_dirty, right backward from the output; and in-place residual add."""
from _c import *
class Leaky_(Function):
    @staticmethod
    def forward(ctx, x): ctx.mark_dirty(x); F.leaky_relu_(x, .2); ctx.save_for_backward(x); return x
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; return torch.where(x > 0, g, .2 * g)
class Add_(Function):
    @staticmethod
    def forward(ctx, a, b): ctx.mark_dirty(a); return a.add_(b)
    @staticmethod
    def backward(ctx, g): return g, g
class B(nn.Module):
    def __init__(self, c): super().__init__(); self.c = nn.Conv2d(c, c, 3, padding=1)
    def forward(self, x): return Add_.apply(Leaky_.apply(self.c(x)).clone(), x)
m = nn.Sequential(nn.Conv2d(3, 8, 3), B(8), B(8), nn.Flatten(), nn.Linear(8 * 64, 3)); x = torch.randn(6, 8, 3, 10, 10); y = torch.randint(3, (6, 8)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]))
