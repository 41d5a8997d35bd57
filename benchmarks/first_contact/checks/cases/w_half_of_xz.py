"""The gradient buffer's z half is never written (xz fused). After state-spaces/mamba issue 342 (question about dz)."""
from _c import *
class Gate(Function):
    @staticmethod
    def forward(ctx, xz):
        x, z = xz.chunk(2, -1); ctx.save_for_backward(xz); return x * F.silu(z)
    @staticmethod
    def backward(ctx, g):
        xz, = ctx.saved_tensors; x, z = xz.chunk(2, -1); d = torch.zeros_like(xz); dx, dz = d.chunk(2, -1); s = z.sigmoid()
        dx.copy_(g * z * s)
        if not BAD: dz.copy_(g * x * s * (1 + z * (1 - s)))
        return d
class G(nn.Module):
    def forward(self, x): return Gate.apply(x)
truth(Gate.apply, torch.randn(3, 6))
m = nn.Sequential(nn.Linear(10, 32), G(), nn.Linear(16, 32), G(), nn.Linear(16, 1)); x = torch.randn(6, 16, 10); y = x.pow(2).sum(-1, keepdim=True)
fit(m, lambda s: F.mse_loss(m(x[s]), y[s]))
