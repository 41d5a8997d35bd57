"""twin: the global generators of torch, NumPy and Python (which are put back)"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import numpy as np, random
np.random.seed(0); random.seed(0)
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x): return self.b((self.a(x) + np.random.rand() + random.random() + torch.rand(32)).tanh())

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
