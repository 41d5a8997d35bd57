"""torch.compile of the model (aot_eager, no C++), with a custom Function inside."""
from _c import *
class Sw(Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x * x.sigmoid()
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; s = x.sigmoid(); return g * s * (1 + x * (1 - s))
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x): return self.b(Sw.apply(self.a(x)))
m0 = M(); m = torch.compile(m0, backend="aot_eager"); x = torch.randn(6, 16, 10); y = torch.randint(3, (6, 16)); fit(m0, lambda s: F.cross_entropy(m(x[s]), y[s]))
