"""Shift by one (token shift of RWKV) in a Function: backward shifts the wrong way. Arithmetic."""
from _c import *
class Shift(Function):
    @staticmethod
    def forward(ctx, x): return F.pad(x, (0, 0, 1, -1))
    @staticmethod
    def backward(ctx, g): return F.pad(g, (0, 0, 1, -1)) if BAD else F.pad(g, (0, 0, -1, 1))
class RW(nn.Module):
    def __init__(self, d): super().__init__(); self.mu = nn.Parameter(torch.full((d,), .5)); self.k = nn.Linear(d, 2 * d); self.v = nn.Linear(2 * d, d)
    def forward(self, x): s = Shift.apply(x); return x + self.v(self.k(x * self.mu + s * (1 - self.mu)).relu().square())
truth(Shift.apply, torch.randn(2, 3, 2))
m = nn.Sequential(nn.Embedding(20, 12), RW(12), nn.LayerNorm(12), RW(12), nn.Linear(12, 20)); x = torch.randint(20, (6, 4, 10)); fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 20), x[s].roll(1, 1).reshape(-1)), lr=.1)
