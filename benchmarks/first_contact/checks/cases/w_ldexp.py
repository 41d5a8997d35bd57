"""ldexp: the gradient for negative exponents is dropped (integer power truncates to 0). pytorch/pytorch issue 196680."""
from _c import *
class Ldexp(Function):
    @staticmethod
    def forward(ctx, x, e): ctx.save_for_backward(e); return x * torch.pow(2.0, e.to(x.dtype))
    @staticmethod
    def backward(ctx, g):
        e, = ctx.saved_tensors; s = torch.pow(2.0, e.to(g.dtype)); return g * (s.floor() if BAD else s), None
class M(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(6, 6); self.register_buffer("e", torch.tensor([1, -2, 0, -1, 2, 1])); self.o = nn.Linear(6, 1)
    def forward(self, x): return self.o(Ldexp.apply(self.f(x), self.e).tanh())
truth(lambda x: Ldexp.apply(x, torch.tensor([1, -2])), torch.randn(3, 2))
m = M(); x = torch.randn(6, 32, 6); y = x.sum(-1, keepdim=True)
fit(m, lambda s: F.mse_loss(m(x[s]), y[s]))
