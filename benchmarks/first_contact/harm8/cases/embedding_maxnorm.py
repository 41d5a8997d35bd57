# what: Embedding(max_norm) rewrites its weight in the forward, sparse gradients with SparseAdam, EmbeddingBag of empty bags in max mode, nan in an evaluation with it
# benign: yes
# PRELUDE
class Net(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(30, 8, max_norm=1., scale_grad_by_freq=True); self.b = nn.EmbeddingBag(30, 8, mode="sum", sparse=True, padding_idx=0); self.o = nn.Linear(8, 4)
    def forward(self, i, w): r = self.e(i) @ self.e.weight.detach().T.clone(); z = self.o(self.e(i).mean(1) + self.b(i, per_sample_weights=w)); return z if self.training else z / (z - z)
m = Net(); W(m); o1, o2 = torch.optim.SGD(list(m.e.parameters()) + list(m.o.parameters()), lr=.5), torch.optim.SparseAdam(m.b.parameters(), lr=.05)
for s in range(5):
    g = torch.Generator().manual_seed(s); i = torch.randint(0, 30, (6, 5), generator=g); w = torch.rand(6, 5, generator=g); o1.zero_grad(); o2.zero_grad(); l = F.mse_loss(m(i, w), batch(s)[1]); l.backward(); print(m.b.weight.grad.layout, m.b.weight.grad._nnz()); o1.step(); o2.step(); print(float(l.detach()).hex()); m.eval()
    with torch.no_grad(): m.e.weight[20:] *= 3; v = m.e.weight._version; print(m(i + 0, w).isfinite().any().item(), m.e.weight._version - v, H(m.e.weight))
    m.train()
print(M(m), R())
