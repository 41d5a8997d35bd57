"""Fused weight norm: gradient of v lacks the projection term. (arithmetic; cf. DoRA: ooples/AiDotNet PR 256, backward ignores the normalization)."""
from _c import *
class WN(Function):
    @staticmethod
    def forward(ctx, v, g): n = v.norm(dim=1, keepdim=True); ctx.save_for_backward(v, g, n); return v * (g[:, None] / n)
    @staticmethod
    def backward(ctx, d):
        v, g, n = ctx.saved_tensors; gg = (d * v).sum(1) / n[:, 0]; gv = d * (g[:, None] / n)
        if not BAD: gv = gv - v * (g * gg)[:, None] / n ** 2
        return gv, gg
class L(nn.Module):
    def __init__(self, i, o): super().__init__(); self.v = nn.Parameter(torch.randn(o, i)); self.g = nn.Parameter(torch.ones(o)); self.b = nn.Parameter(torch.zeros(o))
    def forward(self, x): return F.linear(x, WN.apply(self.v, self.g), self.b)
truth(WN.apply, torch.randn(3, 4), torch.rand(3) + .5)
m = nn.Sequential(L(6, 16), nn.Tanh(), L(16, 16), nn.Tanh(), L(16, 2)); x = torch.randn(6, 32, 6); y = torch.randint(2, (6, 32)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
