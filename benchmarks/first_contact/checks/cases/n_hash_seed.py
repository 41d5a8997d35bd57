"""seed from hash of a string: other between runs (PYTHONHASHSEED), the same within one. Nothing to find by doing it again"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

g = torch.Generator().manual_seed(hash("experiment") % 1000)
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3); self.a.weight.data.normal_(0, .3, generator=g)
    def forward(self, x): return self.b(self.a(x).relu())

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
