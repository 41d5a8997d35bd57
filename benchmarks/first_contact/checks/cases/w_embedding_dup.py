"""Embedding lookup: backward writes rows instead of adding them, wrong for tokens that repeat. Arithmetic (index_put without accumulate)."""
from _c import *
class Emb(Function):
    @staticmethod
    def forward(ctx, W, i): ctx.save_for_backward(i); ctx.s = W.shape; return W[i]
    @staticmethod
    def backward(ctx, g):
        i, = ctx.saved_tensors; d = torch.zeros(ctx.s, dtype=g.dtype); d.index_put_((i.reshape(-1),), g.reshape(-1, g.shape[-1]), accumulate=not BAD); return d, None
class E(nn.Module):
    def __init__(self): super().__init__(); self.W = nn.Parameter(torch.randn(15, 8))
    def forward(self, i): return Emb.apply(self.W, i)
truth(lambda W: Emb.apply(W, torch.tensor([0, 1, 1])), torch.randn(3, 2))
m = nn.Sequential(E(), nn.GRU(8, 8, batch_first=True)); h = nn.Linear(8, 15); M = nn.ModuleList([m, h]); x = torch.randint(15, (6, 8, 10))
class Net(nn.Module):
    def __init__(self): super().__init__(); self.e = E(); self.r = nn.GRU(8, 8, batch_first=True); self.o = nn.Linear(8, 15)
    def forward(self, i): return self.o(self.r(self.e(i))[0])
m = Net(); fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 15), x[s].roll(-1, 1).reshape(-1)), lr=.1)
