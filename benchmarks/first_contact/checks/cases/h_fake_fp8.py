"""Fake fp8 cast (e4m3 forward, e5m2 of the gradient in backward), identity gradient; and truncation of the gradient to bf16."""
from _c import *
class Fp8(Function):
    @staticmethod
    def forward(ctx, x): s = 448 / x.abs().amax().clamp_min(1e-12); return (x * s).to(torch.float8_e4m3fn).to(x.dtype) / s
    @staticmethod
    def backward(ctx, g): s = 57344 / g.abs().amax().clamp_min(1e-12); return (g * s).to(torch.float8_e5m2).to(g.dtype) / s
class GradBf16(Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return (g * 2).bfloat16().to(g.dtype)
class L(nn.Linear):
    def forward(self, x): return F.linear(Fp8.apply(x), Fp8.apply(self.weight), self.bias)
class G(nn.Module):
    def forward(self, x): return GradBf16.apply(x)
m = nn.Sequential(L(10, 32), nn.ReLU(), G(), L(32, 3)); x = torch.randn(6, 16, 10); y = torch.randint(3, (6, 16)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.05)
