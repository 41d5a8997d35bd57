"""Depthwise scale, wrong for one channel of 64 only (an off-by-one in a kernel's bound). Small error: 1/64 of the parameter."""
from _c import *
class Scale(Function):
    @staticmethod
    def forward(ctx, x, w): ctx.save_for_backward(x, w); return x * w
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors; gw = (g * x).sum(0)
        if BAD: gw[-1] = 0
        return g * w, gw
class S(nn.Module):
    def __init__(self, d): super().__init__(); self.w = nn.Parameter(torch.ones(d))
    def forward(self, x): return Scale.apply(x, self.w)
truth(Scale.apply, torch.randn(3, 4), torch.randn(4))
m = nn.Sequential(nn.Linear(16, 64), S(64), nn.GELU(), nn.Linear(64, 4)); x = torch.randn(6, 32, 16); y = torch.randint(4, (6, 32)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
