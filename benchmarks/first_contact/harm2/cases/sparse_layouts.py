"""Sparse COO and CSR inputs and weights, gradients of sparse masks, errors the script catches.

Source: https://github.com/pytorch/pytorch/pull/82836
"""
# PRELUDE
import warnings; warnings.simplefilter("ignore")
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self): super().__init__(); self.w = nn.Parameter(torch.randn(6, 3)); self.l = nn.Linear(3, 2)
    def forward(self, a): return self.l(a @ self.w)
m = Net(); W(m)
opt = torch.optim.Adagrad(m.parameters(), 0.1)
d = torch.randn(4, 6) * (torch.rand(4, 6) > 0.5)
for a in (d.to_sparse(), d.to_sparse_csr(), d.to_sparse()):
    loss = m(a).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(a.layout, float(loss.detach()).hex())
class S(nn.Module):
    def __init__(self): super().__init__(); self.p = nn.Parameter(d.to_sparse())
    def forward(self, x): return torch.sparse.mm(self.p, x)
s = S(); W(s); s(torch.randn(6, 2)).sum().backward(); print(s.p.grad.layout, H(s.p.grad.coalesce()))
try:
    m(d.to_sparse_csc().to_sparse_bsr((2, 2)))
    print("ok")
except Exception as e:
    print(type(e).__name__)
print(M(m))
