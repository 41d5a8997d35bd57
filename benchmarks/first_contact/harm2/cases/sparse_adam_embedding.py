"""Sparse embedding gradients with SparseAdam beside Adam; layout and bits of gradients.

Source: https://github.com/pytorch/pytorch/issues/84537
"""
# PRELUDE
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 4, sparse=True); self.b = nn.EmbeddingBag(30, 4, sparse=True, mode="sum"); self.l = nn.Linear(4, 1)
    def forward(self, i):
        return self.l(self.e(i).sum(1) + self.b(i))
m = Net(); W(m)
o1 = torch.optim.SparseAdam([m.e.weight, m.b.weight], 1e-2); o2 = torch.optim.Adam(m.l.parameters(), 1e-2)
for s in range(5):
    loss = m(torch.randint(0, 30, (4, 6))).square().mean()
    o1.zero_grad(); o2.zero_grad(); loss.backward()
    g = m.e.weight.grad
    print(g.layout, g.is_coalesced(), g._nnz(), H(g.coalesce()), float(loss.detach()).hex())
    o1.step(); o2.step()
print(H(dict(m.state_dict())), R())
