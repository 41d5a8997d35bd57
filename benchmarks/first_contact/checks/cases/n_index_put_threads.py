"""index_put_(accumulate=True) of many rows with 2 threads on the CPU (atomic adds): really differs. Cause: nondeterministic operation."""
from _c import *
torch.set_num_threads(2)
idx = torch.randint(50, (200000,)); x = torch.randn(8, 200000); y = torch.randint(3, (8,))
class M(nn.Module):
    def __init__(self): super().__init__(); self.w = nn.Parameter(torch.randn(3, 50) * .01)
    def forward(self, x):
        h = torch.zeros(50).index_put_((idx,), x * .1, accumulate=True)   # CAUSE
        return F.linear(h[None], self.w)
m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s:s + 1]), steps=8, lr=1e-3)
