"""twin: plain tensor attribute changed in place through .data, and a deque of activations"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import collections
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3); self.t = torch.randn(50, 32); self.d = collections.deque(maxlen=3)
    def forward(self, x): self.t.data.mul_(.9); h = (self.a(x) + self.t[:len(x)]).tanh(); self.d.append(h.detach()); return self.b(h + sum(self.d) / 10)

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
