"""temperature by a module-level counter that the forward increments. Cause: counter outside of the model"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

calls = 0
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        global calls
        calls += 1
        return self.b(self.a(x).relu()) / (1 + .1 * calls)   # CAUSE

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
