"""Triplet hinge in the model: the anchor's gradient lacks the negative's part (a missing term for one of three operands)."""
from _c import *
class Trip(Function):
    @staticmethod
    def forward(ctx, a, p, n, mg): h = (a - p).pow(2).sum(-1) - (a - n).pow(2).sum(-1) + mg; ctx.save_for_backward(a, p, n, h); return h.clamp_min(0).mean()
    @staticmethod
    def backward(ctx, g):
        a, p, n, h = ctx.saved_tensors; k = (h > 0).to(a)[:, None] * g * 2 / len(a); return (k * (a - p) if BAD else k * (n - p)), k * (p - a), k * (a - n), None
class M(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 8))
    def forward(self, a, p, n): return Trip.apply(self.f(a), self.f(p), self.f(n), 1.)
truth(lambda a, p, n: Trip.apply(a, p, n, 1.), *(torch.randn(4, 3) for _ in range(3)))
m = M(); x = torch.randn(6, 3, 32, 12); fit(m, lambda s: m(*x[s]))
