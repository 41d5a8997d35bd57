"""Functions that save their outputs: sigmoid, tanh, exp, softmax; chained."""
from _c import *
class Sig(Function):
    @staticmethod
    def forward(ctx, x): y = 1 / (1 + (-x).exp()); ctx.save_for_backward(y); return y
    @staticmethod
    def backward(ctx, g): y, = ctx.saved_tensors; return g * y * (1 - y)
class Soft(Function):
    @staticmethod
    def forward(ctx, x): y = x.softmax(-1); ctx.save_for_backward(y); return y
    @staticmethod
    def backward(ctx, g): y, = ctx.saved_tensors; return y * (g - (g * y).sum(-1, keepdim=True))
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 16); self.b = nn.Linear(16, 16); self.c = nn.Linear(16, 2)
    def forward(self, x): h = Sig.apply(self.a(x)); return self.c(Soft.apply(self.b(h)) * Sig.apply(h))
m = M(); x = torch.randn(6, 32, 10); y = torch.randint(2, (6, 32)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.5)
