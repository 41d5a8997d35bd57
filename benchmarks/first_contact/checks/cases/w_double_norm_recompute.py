"""Recomputation normalizes what was saved after the norm: a second RMSNorm in backward. state-spaces/mamba PR 919, issue 885."""
from _c import *
def rms(x, w): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w
class Inner(Function):
    @staticmethod
    def forward(ctx, x, Bm, C, bw, level):
        Bn = rms(Bm, bw); ctx.level = level; ctx.save_for_backward(x, Bm, Bn, C, bw)
        return (x * Bn).cumsum(1) * C
    @staticmethod
    def backward(ctx, g):
        x, Bm, Bn, C, bw = ctx.saved_tensors
        if ctx.level == 1 and BAD: Bn = rms(Bn, bw)              # checkpoint_lvl == 1: normalized again
        gC = g * (x * Bn).cumsum(1)
        gs = (g * C).flip(1).cumsum(1).flip(1)
        with torch.enable_grad():
            b = Bm.detach().requires_grad_(); w = bw.detach().requires_grad_(); n = rms(b, w)
        gB, gw = torch.autograd.grad(n, (b, w), gs * x)
        return gs * Bn, gB, gC, gw, None
class Mamba(nn.Module):
    def __init__(self, d):
        super().__init__(); self.p = nn.Linear(d, 3 * d); self.bw = nn.Parameter(torch.rand(d) * 2 + .5)
    def forward(self, u):
        x, b, c = self.p(u).chunk(3, -1); return u + Inner.apply(x, b, c, self.bw, 1)
truth(lambda x, b, c, w: Inner.apply(x, b, c, w, 1), torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.rand(4) + 1)
m = nn.Sequential(nn.Embedding(20, 12), Mamba(12), nn.LayerNorm(12), Mamba(12), nn.Linear(12, 20)); x = torch.randint(20, (6, 4, 9))
fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 20), x[s].roll(-1, 1).reshape(-1)), lr=.1)
