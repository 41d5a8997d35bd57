"""Wrong only for bfloat16: the kernel's vectorized half path sums the weight gradient over the first 2 rows of each 4 (a lane mask); float32 and float64 take another path. Cf. Liger-Kernel PR 182 (rms_norm dW wrong in bf16)."""
from _c import *
class RMS(Function):
    @staticmethod
    def forward(ctx, x, w):
        xf = x.to(torch.promote_types(x.dtype, torch.float32)); h = xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + 1e-6); ctx.save_for_backward(x, w); return (h * w).to(x.dtype)
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors; t = torch.promote_types(x.dtype, torch.float32); xf, gf = x.to(t), g.to(t); rs = torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + 1e-6); h = xf * rs
        gw = (gf * h).reshape(-1, w.numel()); wg = gf * w
        if BAD and x.dtype == torch.bfloat16: gw = gw[torch.arange(len(gw)) % 4 < 2]
        return (rs * (wg - h * (wg * h).mean(-1, keepdim=True))).to(x.dtype), gw.sum(0).to(w.dtype)
class N(nn.Module):
    def __init__(self, d): super().__init__(); self.w = nn.Parameter(torch.ones(d))
    def forward(self, x): return RMS.apply(x, self.w)
if TRUTH:
    x = torch.randn(16, 8).bfloat16(); w = torch.ones(8, requires_grad=True); RMS.apply(x, w).sum().backward(); h = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    e = float((w.grad - h.sum(0)).norm() / h.sum(0).norm()); print("TRUTH:", "WRONG" if e > .05 else "right", f"dw off by {e:.3g} in bfloat16"); sys.exit()
m = nn.Sequential(nn.Embedding(30, 32), nn.Linear(32, 32), N(32), nn.Linear(32, 30)).bfloat16(); m[2].w.data = m[2].w.data.float(); x = torch.randint(30, (6, 8, 8))
fit(m, lambda s: F.cross_entropy(m(x[s]).float().reshape(-1, 30), x[s].roll(1, 1).reshape(-1)), lr=.1)
