"""Soft-capped attention scores: backward lacks 1 - tanh^2. Dao-AILab/flash-attention PR 1033 (backward for softcapping)."""
from _c import *
class SoftCapAttn(Function):
    @staticmethod
    def forward(ctx, q, k, v, cap):
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** .5
        c = torch.tanh(s / cap); p = torch.softmax(c * cap, -1)
        ctx.save_for_backward(q, k, v, c, p); ctx.cap = cap
        return p @ v
    @staticmethod
    def backward(ctx, g):
        q, k, v, c, p = ctx.saved_tensors
        dv = p.transpose(-1, -2) @ g; dp = g @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        if not BAD: ds = ds * (1 - c * c)
        ds = ds / q.shape[-1] ** .5
        return ds @ k, ds.transpose(-1, -2) @ q, dv, None
class M(nn.Module):
    def __init__(self):
        super().__init__(); self.qkv = nn.Linear(16, 48); self.o = nn.Linear(16, 5)
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1); return self.o(SoftCapAttn.apply(q, k, v, 1.0))
truth(lambda q, k, v: SoftCapAttn.apply(q, k, v, 1.0), *(torch.randn(2, 4, 3) for _ in range(3)))
m = M(); x = torch.randn(6, 4, 9, 16) * 2; y = torch.randn(6, 4, 9, 5)
fit(m, lambda s: F.mse_loss(m(x[s]), y[s]))
