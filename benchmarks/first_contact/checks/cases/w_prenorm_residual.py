"""Fused residual add + RMSNorm with two outputs: backward (dres + dout)*dnorm instead of dres + dout*dnorm. Dao-AILab/quack PR 53."""
from _c import *
class PreNorm(Function):
    @staticmethod
    def forward(ctx, x, res, w):
        r = x + res; rs = torch.rsqrt(r.pow(2).mean(-1, keepdim=True) + 1e-6); ctx.save_for_backward(r, rs, w)
        return r * rs * w, r
    @staticmethod
    def backward(ctx, dout, dres):
        r, rs, w = ctx.saved_tensors; h = r * rs
        if BAD: dout_ = dout + dres
        else: dout_ = dout
        wg = dout_ * w; d = rs * (wg - h * (wg * h).mean(-1, keepdim=True))
        if not BAD: d = d + dres
        return d, d, (dout * h).reshape(-1, w.numel()).sum(0)
class Block(nn.Module):
    def __init__(self, d):
        super().__init__(); self.w = nn.Parameter(torch.ones(d)); self.fc = nn.Linear(d, d)
    def forward(self, xr):
        h, r = PreNorm.apply(xr[0], xr[1], self.w); return F.silu(self.fc(h)), r
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Embedding(40, 24); self.b = nn.ModuleList(Block(24) for _ in range(3)); self.h = nn.Linear(24, 40)
    def forward(self, i):
        x = self.e(i), torch.zeros(*i.shape, 24)
        for b in self.b: x = b(x)
        return self.h(x[0] + x[1])
truth(PreNorm.apply, torch.randn(3, 4), torch.randn(3, 4), torch.randn(4))
m = Net(); x = torch.randint(40, (6, 4, 10))
fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 40), x[s].roll(1, 1).reshape(-1)), lr=.1)
