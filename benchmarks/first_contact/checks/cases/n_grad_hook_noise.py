"""a tensor hook adds gradient noise from an own generator. Cause: own generator in backward"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

G = torch.Generator().manual_seed(1)
def noisy(g): return g + 1e-3 * torch.randn(g.shape, generator=G)   # CAUSE
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        h = self.a(x)
        if h.requires_grad: h.register_hook(noisy)
        return self.b(h.relu())

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
