"""SwiGLU's backward writes its gradients into the saved inputs; Exp before it saved its output, which is the same tensor. linkedin/Liger-Kernel issue 254."""
from _c import *
class Exp(Function):
    @staticmethod
    def forward(ctx, x): y = x.exp(); ctx.save_for_backward(y); return y
    @staticmethod
    def backward(ctx, g): return g * ctx.saved_tensors[0]
class SwiGLU(Function):
    @staticmethod
    def forward(ctx, a, b): ctx.save_for_backward(a, b); return F.silu(a) * b
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors; s = a.sigmoid(); da = g * b * s * (1 + a * (1 - s)); db = g * F.silu(a)
        if BAD: a.data.copy_(da); b.data.copy_(db); return a, b
        return da, db
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(12, 16); self.b = nn.Linear(12, 16); self.o = nn.Linear(16, 1)
    def forward(self, x): return self.o(SwiGLU.apply(Exp.apply(self.a(x)), Exp.apply(self.b(x))))
m = M(); x = torch.randn(6, 16, 12); y = x.sum(-1, keepdim=True)
if TRUTH:
    m(x[0]).sum().backward(); got = m.a.weight.grad.clone(); m.zero_grad()
    m.o(F.silu(m.a(x[0]).exp()) * m.b(x[0]).exp()).sum().backward(); verdict(got, m.a.weight.grad, "a.weight.grad")
fit(m, lambda s: F.mse_loss(m(x[s]), y[s]))
