"""augmentation strengths from a global generator object (next). Cause: an iterator outside of the model"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

strengths = (.1 * (k % 5) for k in range(10 ** 6))
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        return self.b(self.a(x).relu() + next(strengths))   # CAUSE

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
