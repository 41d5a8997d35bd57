"""The same, but the forward is x * 1.0 (not an alias), and another scales the gradient by 0.1 with forward x.clone()."""
from _c import *
class Rev(Function):
    @staticmethod
    def forward(ctx, x): return x * 1.0
    @staticmethod
    def backward(ctx, g): return g.neg()
class Scale(Function):
    @staticmethod
    def forward(ctx, x, s): ctx.s = s; return x.clone()
    @staticmethod
    def backward(ctx, g): return g * ctx.s, None
class D(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(10, 16); self.y = nn.Linear(16, 3); self.d = nn.Linear(16, 2)
    def forward(self, x): h = Scale.apply(self.f(x), .1).relu(); return self.y(h), self.d(Rev.apply(h))
m = D(); x = torch.randn(6, 32, 10); y = torch.randint(3, (6, 32)); d = torch.randint(2, (6, 32))
def loss(s): a, b = m(x[s]); return F.cross_entropy(a, y[s]) + F.cross_entropy(b, d[s])
fit(m, loss)
