"""a WeakValueDictionary outside of the model gives the last activation while it lives. Cause: a weak cache"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import weakref
last = weakref.WeakValueDictionary(); hold = []
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        h = self.a(x).relu(); p = last.get("h")
        if p is not None: h = h + .1 * p   # CAUSE
        k = h.detach().clone(); hold[:] = [k]; last["h"] = k
        return self.b(h)

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
