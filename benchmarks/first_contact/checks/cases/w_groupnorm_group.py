"""Group norm: gamma's gradient reads the statistics of group c % G instead of c // (C/G). tenstorrent/tt-metal PR 56202."""
from _c import *
class GN(Function):
    @staticmethod
    def forward(ctx, x, w, b, G):
        N, C = x.shape[:2]; v = x.reshape(N, G, -1); mu = v.mean(-1); rs = (v.var(-1, unbiased=False) + 1e-5).rsqrt()
        h = ((v - mu[..., None]) * rs[..., None]).reshape(x.shape); ctx.save_for_backward(x, mu, rs, w, h); ctx.G = G
        return h * w[:, None, None] + b[:, None, None]
    @staticmethod
    def backward(ctx, g):
        x, mu, rs, w, h = ctx.saved_tensors; N, C = x.shape[:2]; G = ctx.G
        gw = (g * w[:, None, None]).reshape(N, G, -1); hv = h.reshape(N, G, -1)
        gx = rs[..., None] * (gw - gw.mean(-1, keepdim=True) - hv * (gw * hv).mean(-1, keepdim=True))
        idx = torch.arange(C) % G if BAD else torch.arange(C) // (C // G)
        hh = (x - mu[:, idx, None, None]) * rs[:, idx, None, None]
        return gx.reshape(x.shape), (g * hh).sum((0, 2, 3)), g.sum((0, 2, 3)), None
class Norm(nn.Module):
    def __init__(self, c): super().__init__(); self.w = nn.Parameter(torch.ones(c)); self.b = nn.Parameter(torch.zeros(c))
    def forward(self, x): return GN.apply(x, self.w, self.b, 4)
truth(lambda x, w, b: GN.apply(x, w, b, 2), torch.randn(2, 4, 2, 2), torch.randn(4), torch.randn(4))
m = nn.Sequential(nn.Conv2d(3, 8, 3), Norm(8), nn.SiLU(), nn.Conv2d(8, 8, 3), Norm(8), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 36, 3))
x = torch.randn(6, 4, 3, 10, 10); y = torch.randint(3, (6, 4)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]))
