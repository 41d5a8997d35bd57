"""k-winners, hard Gumbel straight-through, hard concrete gates, entmax-like sparsemax: Functions piecewise or random."""
from _c import *
class KWTA(Function):
    @staticmethod
    def forward(ctx, x, k): m = (x >= x.topk(k, -1)[0][..., -1:]).to(x); ctx.save_for_backward(m); return x * m
    @staticmethod
    def backward(ctx, g): return g * ctx.saved_tensors[0], None
class Sparsemax(Function):
    @staticmethod
    def forward(ctx, x): s, _ = x.sort(-1, descending=True); c = s.cumsum(-1) - 1; r = torch.arange(1, x.shape[-1] + 1).to(x); k = (r * s > c).sum(-1, keepdim=True); tau = c.gather(-1, k - 1) / k; y = (x - tau).clamp_min(0); ctx.save_for_backward(y); return y
    @staticmethod
    def backward(ctx, g): y, = ctx.saved_tensors; n = (y > 0).to(g); return n * (g - (g * n).sum(-1, keepdim=True) / n.sum(-1, keepdim=True))
class HardGumbel(Function):
    @staticmethod
    def forward(ctx, z): p = (z - (-torch.rand_like(z).log()).log()).softmax(-1); ctx.save_for_backward(p); return F.one_hot(p.argmax(-1), z.shape[-1]).to(z)
    @staticmethod
    def backward(ctx, g): p, = ctx.saved_tensors; return p * (g - (g * p).sum(-1, keepdim=True))
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(8, 16); self.g = nn.Linear(16, 5); self.b = nn.Linear(5, 16); self.o = nn.Linear(16, 3)
    def forward(self, x): h = KWTA.apply(self.a(x), 6); return self.o(self.b(HardGumbel.apply(self.g(h))) * Sparsemax.apply(h))
m = M(); x = torch.randn(6, 16, 8); y = torch.randint(3, (6, 16)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
