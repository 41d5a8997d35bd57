"""A factor detached inside the Function, on purpose: x / x.norm() with the norm taken as constant (gradient-stabilizing normalization, as in weight standardization tricks; REINFORCE-like weights)."""
from _c import *
class DNorm(Function):
    @staticmethod
    def forward(ctx, x): n = x.norm(dim=-1, keepdim=True) + 1e-6; ctx.save_for_backward(n); return x / n
    @staticmethod
    def backward(ctx, g): n, = ctx.saved_tensors; return g / n      # norm is detached by design
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 16); self.b = nn.Linear(16, 3)
    def forward(self, x): return self.b(DNorm.apply(self.a(x)))
m = M(); x = torch.randn(6, 32, 10); y = torch.randint(3, (6, 32)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]))
