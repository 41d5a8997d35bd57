"""an own autotuner measures two orders of summation at each call and takes the faster. Cause: time"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import time
def tuned(a, b):
    best = None
    for f in (lambda: (a.double() @ b.double()).float(), lambda: sum(a[:, k:k + 1] * b[k:k + 1] for k in range(a.shape[1]))):
        t = time.perf_counter_ns(); r = f(); t = (time.perf_counter_ns() - t) % 997
        if best is None or t < best[0]: best = t, r
    return best[1]   # CAUSE
class M(nn.Module):
    def __init__(self): super().__init__(); self.w = nn.Parameter(torch.randn(10, 32) * .3); self.b = nn.Linear(32, 3)
    def forward(self, x): return self.b(tuned(x, self.w).relu())

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
