"""a thread writes a shared tensor (prefetched scale) all the time. Cause: a race"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

import threading
shared = torch.zeros(32); stop = False
def writer():
    k = 0
    while not stop: k += 1; shared.fill_((k % 1000) / 1000)
threading.Thread(target=writer, daemon=True).start()
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        return self.b((self.a(x) + shared).tanh())   # CAUSE

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
