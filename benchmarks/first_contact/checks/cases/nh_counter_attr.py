"""twin: counter and iterator (itertools.count) in attributes"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import itertools
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3); self.n = 0; self.it = itertools.count()
    def forward(self, x): self.n += 1; return self.b(self.a(x).relu()) / (1 + .1 * self.n + .01 * next(self.it))

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
