"""MoE combine with top-2 weights: the router weight's gradient uses the expert outputs in the other order (unpermute index forgotten). After NVIDIA-NeMo/Automodel issue 1408 (router gets a wrong gradient)."""
from _c import *
class Combine(Function):
    @staticmethod
    def forward(ctx, ys, w, perm):                  # ys (T*k, D) sorted by expert, w (T, k)
        inv = perm.argsort(); y = ys[inv].view(*w.shape, -1); ctx.save_for_backward(ys, w, perm, inv); return (y * w[..., None]).sum(1)
    @staticmethod
    def backward(ctx, g):
        ys, w, perm, inv = ctx.saved_tensors
        y = (ys if BAD else ys[inv]).view(*w.shape, -1); gw = (y * g[:, None]).sum(-1)
        return (g[:, None] * w[..., None]).reshape(ys.shape)[perm], gw, None
class MoE(nn.Module):
    def __init__(self, d=16, e=4): super().__init__(); self.r = nn.Linear(d, e); self.ex = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.SiLU(), nn.Linear(32, d)) for _ in range(e))
    def forward(self, x):
        p = self.r(x).softmax(-1); w, e = p.topk(2, -1); flat = e.reshape(-1); perm = flat.argsort(stable=True); xs = x.repeat_interleave(2, 0)[perm]
        ys = torch.cat([ex(c) for ex, c in zip(self.ex, xs.split(torch.bincount(flat, minlength=4).tolist()))])
        return x + Combine.apply(ys, w / w.sum(-1, keepdim=True), perm)
truth(lambda y, w: Combine.apply(y, w, torch.tensor([3, 0, 2, 1])), torch.randn(4, 3), torch.rand(2, 2))
m = nn.Sequential(nn.Linear(10, 16), MoE(), MoE(), nn.Linear(16, 3)); x = torch.randn(6, 24, 10); y = torch.randint(3, (6, 24))
fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
