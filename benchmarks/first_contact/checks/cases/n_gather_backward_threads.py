"""Gather's backward (index_put accumulate) of an embedding read by indexing, 2 threads: the parameter's gradient differs. Cause: nondeterministic backward."""
from _c import *
torch.set_num_threads(2)
idx = torch.randint(20, (8, 150000))
class M(nn.Module):
    def __init__(self): super().__init__(); self.w = nn.Parameter(torch.randn(20))
    def forward(self, i): return self.w[i].sin()   # CAUSE (backward)
m = M(); fit(m, lambda s: (m(idx[s]) * torch.linspace(0, 1, 150000)).mean(), steps=8, lr=1.)
