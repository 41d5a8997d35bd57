"""twin: NumPy Generator and random.Random in attributes"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import numpy as np, random
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3); self.rng = np.random.default_rng(0); self.r = random.Random(1)
    def forward(self, x): return self.b((self.a(x) + .1 * torch.from_numpy(self.rng.normal(size=(len(x), 32)).astype("float32"))).relu() * self.r.random())

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
