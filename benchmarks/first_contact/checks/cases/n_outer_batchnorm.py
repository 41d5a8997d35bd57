"""a batch norm that is in no model, with running statistics used in training (eval form). Cause: a layer outside of the model changes"""
from _c import *
x = torch.randn(8, 16, 10); y = torch.randint(3, (8, 16))

bn = nn.BatchNorm1d(32, affine=False)
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(32, 3)
    def forward(self, x):
        h = self.a(x); bn(h.detach())
        return self.b(((h - bn.running_mean) / bn.running_var.sqrt()).relu())   # CAUSE

m = M(); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), steps=8, lr=.1)
