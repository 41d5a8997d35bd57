"""In-place activation saves its input and then writes over it: the mask x > 0 is of the result; for leaky ReLU with negative slope < 0 (and for the derivative of x*sigmoid) it is wrong. ABN, mapillary/inplace_abn-like; cf. pytorch/pytorch issue 24413."""
from _c import *
class SiLU_(Function):
    @staticmethod
    def forward(ctx, x):
        keep = x.detach() if BAD else x.detach().clone()
        y = x.sigmoid() * x; x.data.copy_(y); ctx.mark_dirty(x); ctx.k = keep; return x
    @staticmethod
    def backward(ctx, g): x = ctx.k; s = x.sigmoid(); return g * s * (1 + x * (1 - s))
class A(nn.Module):
    def forward(self, x): return SiLU_.apply(x)
truth(lambda x: SiLU_.apply(x * 1.), torch.randn(4))
m = nn.Sequential(nn.Conv1d(3, 8, 3), A(), nn.Conv1d(8, 8, 3), A(), nn.Flatten(), nn.Linear(8 * 12, 2)); x = torch.randn(6, 8, 3, 16); y = torch.randint(2, (6, 8)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
