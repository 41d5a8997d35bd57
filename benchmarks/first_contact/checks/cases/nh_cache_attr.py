"""twin: the cache dict in an attribute"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3); self.register_buffer("p", torch.randn(10, 10)); self.c = {}
    def forward(self, x):
        k = float(x[0, 0])
        if k in self.c: f = self.c[k].float()
        else: f = x @ self.p; self.c[k] = f.bfloat16()
        return self.b(self.a(f).relu())

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
