"""Fused RMSNorm returns None for its weight. huggingface/candle issue 2168, paiml/aprender PR 2196 (affine parameters get no gradient)."""
from _c import *
class RMS(Function):
    @staticmethod
    def forward(ctx, x, w): rs = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6); ctx.save_for_backward(x, w, rs); return x * rs * w
    @staticmethod
    def backward(ctx, g):
        x, w, rs = ctx.saved_tensors; h = x * rs; wg = g * w
        return rs * (wg - h * (wg * h).mean(-1, keepdim=True)), None if BAD else (g * h).reshape(-1, w.numel()).sum(0)
class N(nn.Module):
    def __init__(self, d): super().__init__(); self.w = nn.Parameter(torch.ones(d))
    def forward(self, x): return RMS.apply(x, self.w)
truth(RMS.apply, torch.randn(3, 4), torch.randn(4))
m = nn.Sequential(nn.Linear(8, 16), N(16), nn.ReLU(), nn.Linear(16, 3)); x = torch.randn(6, 16, 8); y = torch.randint(3, (6, 16)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
