"""sum over a set of fresh objects: the order follows their addresses. Cause: set order"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

class Item:
    def __init__(self, v): self.v = v
keep = []
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.ModuleList(nn.Linear(10, 32) for _ in range(7)); self.b = nn.Linear(32, 3)
    def forward(self, x):
        keep.append(bytearray(len(keep) * 37 + 5)); s = {Item(l(x)) for l in self.a}
        h = 0
        for i in s: h = h + i.v   # CAUSE
        return self.b(h.relu())

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
