"""the forward normalizes a global table in place through .data, each call more. Cause: data changed in place, outside of the model"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

table = torch.randn(50, 32)
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        table.data.mul_(.9)
        return self.b((self.a(x) + table[:len(x)]).tanh())   # CAUSE

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
