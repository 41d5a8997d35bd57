"""a counter in a file, read and incremented by the forward. Cause: a file"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import os, tempfile
path = tempfile.mktemp(); open(path, "w").write("0")
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        n = int(open(path).read()) + 1
        with open(path, "w") as f: f.write(str(n))
        return self.b(self.a(x).relu() * (1 + .01 * n))   # CAUSE

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
