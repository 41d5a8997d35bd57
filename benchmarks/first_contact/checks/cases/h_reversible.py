"""Reversible block (RevNet/Reformer): backward recomputes inputs from outputs; float32 rounding makes its gradient differ a little; saves no input."""
from _c import *
class Rev(Function):
    @staticmethod
    def forward(ctx, x1, x2, f, g, *p):
        with torch.no_grad(): y1 = x1 + f(x2); y2 = x2 + g(y1)
        ctx.f, ctx.g, ctx.p = f, g, p; ctx.save_for_backward(y1, y2); return y1, y2
    @staticmethod
    def backward(ctx, d1, d2):
        y1, y2 = ctx.saved_tensors; f, g, p = ctx.f, ctx.g, ctx.p
        with torch.enable_grad():
            a = y1.detach().requires_grad_(); gy = g(a); pg = [q for q in g.parameters()]; r = torch.autograd.grad(gy, [a] + pg, d2)
        d1 = d1 + r[0]; x2 = y2 - gy.detach()
        with torch.enable_grad():
            b = x2.detach().requires_grad_(); fy = f(b); pf = [q for q in f.parameters()]; t = torch.autograd.grad(fy, [b] + pf, d1)
        return (d1, d2 + t[0], None, None) + tuple(t[1:]) + tuple(r[1:])
class B(nn.Module):
    def __init__(self, d): super().__init__(); mk = lambda: nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); self.f, self.g = mk(), mk()
    def forward(self, x): a, b = x.chunk(2, -1); return torch.cat(Rev.apply(a, b, self.f, self.g, *self.f.parameters(), *self.g.parameters()), -1)
m = nn.Sequential(nn.Linear(6, 16), B(8), B(8), B(8), nn.Linear(16, 2)); x = torch.randn(6, 16, 6); y = torch.randint(2, (6, 16)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
