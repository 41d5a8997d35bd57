"""time.time() sets a phase of the positional signal. Cause: clock"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import time
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        t = time.time() % 1
        return self.b((self.a(x) + t).tanh())   # CAUSE

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
