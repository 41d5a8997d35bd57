"""dropout mask from a torch.Generator of the script (module level). Cause: random number from an own generator"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

G = torch.Generator().manual_seed(7)
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        h = self.a(x).relu()
        return self.b(h * (torch.rand(h.shape, generator=G) > .2))   # CAUSE

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
