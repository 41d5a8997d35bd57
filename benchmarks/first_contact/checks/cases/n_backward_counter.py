"""a Function's backward has a class attribute that grows (gradient scale warm-up). Cause: counter in backward"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

class Warm(Function):
    n = 0
    @staticmethod
    def forward(ctx, x): return x.view_as(x)
    @staticmethod
    def backward(ctx, g): Warm.n += 1; return g * min(1., Warm.n / 10)   # CAUSE
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x): return self.b(Warm.apply(self.a(x)).relu())

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
