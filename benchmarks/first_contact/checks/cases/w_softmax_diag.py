"""Softmax backward with the diagonal of the Jacobian only. pocketpy/cTensor PR 31. Edge softmax of a GAT."""
from _c import *
class Softmax(Function):
    @staticmethod
    def forward(ctx, z): y = z.softmax(-1); ctx.save_for_backward(y); return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors; return g * y * (1 - y) if BAD else y * (g - (g * y).sum(-1, keepdim=True))
class GAT(nn.Module):
    def __init__(self, i, o): super().__init__(); self.f = nn.Linear(i, o); self.a = nn.Linear(o, 1); self.b = nn.Linear(o, 1)
    def forward(self, x):
        h = self.f(x); return F.elu(Softmax.apply(F.leaky_relu(self.a(h) + self.b(h).transpose(-1, -2), .2)) @ h)
truth(Softmax.apply, torch.randn(3, 4))
m = nn.Sequential(GAT(6, 12), GAT(12, 3)); x = torch.randn(6, 20, 6); y = torch.randint(3, (6, 20)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
