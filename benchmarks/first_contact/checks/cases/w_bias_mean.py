"""Fused bias+ReLU: bias gradient is the mean over the batch instead of the sum (wrong reduction). Cf. Primus-Turbo PR 329 (bias gradient not reduced)."""
from _c import *
class BiasReLU(Function):
    @staticmethod
    def forward(ctx, x, b):
        y = (x + b).clamp_min(0); ctx.save_for_backward(y); return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors; g = g * (y > 0)
        return g, g.mean(0) if BAD else g.sum(0)
class L(nn.Module):
    def __init__(self):
        super().__init__(); self.fc = nn.Linear(20, 40, bias=False); self.b = nn.Parameter(torch.zeros(40)); self.out = nn.Linear(40, 3)
    def forward(self, x): return self.out(BiasReLU.apply(self.fc(x), self.b))
truth(BiasReLU.apply, torch.randn(6, 4), torch.randn(4))
m = L(); x = torch.randn(6, 32, 20); y = torch.randint(3, (6, 32))
fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]))
