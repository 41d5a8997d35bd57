"""Graph layer: mean aggregation whose backward doesn't divide by the degree. Cf. rusty1s/pytorch_scatter issue 118 (segment mean backward)."""
from _c import *
class ScatterMean(Function):
    @staticmethod
    def forward(ctx, x, idx, n):
        c = torch.zeros(n, dtype=x.dtype).index_add_(0, idx, torch.ones(len(idx), dtype=x.dtype)).clamp_min(1); ctx.save_for_backward(idx, c)
        return torch.zeros(n, x.shape[1], dtype=x.dtype).index_add_(0, idx, x) / c[:, None]
    @staticmethod
    def backward(ctx, g):
        idx, c = ctx.saved_tensors; return (g if BAD else g / c[:, None])[idx], None, None
class GNN(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 3)
    def forward(self, x, ei): return self.b(ScatterMean.apply(self.a(x)[ei[0]], ei[1], len(x)).relu())
truth(lambda x: ScatterMean.apply(x, torch.tensor([0, 1, 1, 0, 1]), 2), torch.randn(5, 3))
m = GNN(); x = torch.randn(6, 30, 8); ei = torch.randint(30, (2, 150)); y = torch.randint(3, (6, 30))
fit(m, lambda s: F.cross_entropy(m(x[s], ei), y[s]), lr=.1)
