"""Backward returns the bias's gradient per token: autograd's engine sums over broadcast dimensions. pytorch/pytorch issue 65244 ("expected"); Primus-Turbo PR 329 took it for a bug."""
from _c import *
class BiasGelu(Function):
    @staticmethod
    def forward(ctx, x, b): ctx.save_for_backward(x, b); return F.silu(x + b)
    @staticmethod
    def backward(ctx, g): x, b = ctx.saved_tensors; z = x + b; s = z.sigmoid(); d = g * s * (1 + z * (1 - s)); return d, d
class L(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(8, 16, bias=False); self.b = nn.Parameter(torch.zeros(16)); self.o = nn.Linear(16, 2)
    def forward(self, x): return self.o(BiasGelu.apply(self.f(x), self.b))
m = L(); x = torch.randn(6, 4, 10, 8); y = torch.randn(6, 4, 10, 2); fit(m, lambda s: F.mse_loss(m(x[s]), y[s]))
