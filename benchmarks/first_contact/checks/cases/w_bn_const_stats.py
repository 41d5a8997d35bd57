"""Batch norm whose backward takes mean and variance as constants. facebookresearch/CrypTen PR 143."""
from _c import *
class BN(Function):
    @staticmethod
    def forward(ctx, x, w, b):
        mu = x.mean((0, 2, 3), keepdim=True); inv = (x.var((0, 2, 3), unbiased=False, keepdim=True) + 1e-5).rsqrt()
        h = (x - mu) * inv; ctx.save_for_backward(h, inv, w); return h * w[:, None, None] + b[:, None, None]
    @staticmethod
    def backward(ctx, g):
        h, inv, w = ctx.saved_tensors; d = (0, 2, 3); gw = g * w[:, None, None]
        gx = gw * inv if BAD else inv * (gw - gw.mean(d, keepdim=True) - h * (gw * h).mean(d, keepdim=True))
        return gx, (g * h).sum(d), g.sum(d)
class Norm(nn.Module):
    def __init__(self, c):
        super().__init__(); self.w = nn.Parameter(torch.ones(c)); self.b = nn.Parameter(torch.zeros(c))
    def forward(self, x): return BN.apply(x, self.w, self.b)
truth(BN.apply, torch.randn(3, 2, 2, 2), torch.randn(2), torch.randn(2))
m = nn.Sequential(nn.Conv2d(1, 6, 3), Norm(6), nn.ReLU(), nn.Conv2d(6, 8, 3, 2), Norm(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
x = torch.randn(6, 8, 1, 12, 12); y = torch.randint(10, (6, 8)); m(x[0])
fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]))
