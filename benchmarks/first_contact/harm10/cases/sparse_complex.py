#: what: sparse gradients with SparseAdam beside a complex-valued layer (FFT, complex parameters) with Adam; angle and log of zero magnitude logged
#: benign: -inf log-magnitude in a log
#: source: memory
# PRELUDE
class M(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(50, 8, sparse=True, padding_idx=0); self.bag = nn.EmbeddingBag(50, 8, mode="max", sparse=False); self.w = nn.Parameter(torch.randn(5, dtype=torch.cfloat) * 0.3); self.o = nn.Linear(8, 2)
    def forward(self, ids): h = self.e(ids).mean(1) + self.bag(ids); z = torch.fft.rfft(h) * self.w; self.mag = z.detach().abs().mul(0).log(); return self.o(torch.fft.irfft(z, n=8))
m = M(); watch(m); o1 = torch.optim.SparseAdam([m.e.weight], 1e-2); o2 = torch.optim.Adam([p for n, p in m.named_parameters() if n != "e.weight"], 1e-2)
for s in range(15):
    ids = torch.randint(0, 50, (6, 4)); l = F.cross_entropy(m(ids), ids[:, 0] % 2); o1.zero_grad(); o2.zero_grad(); l.backward(); g = m.e.weight.grad; o1.step(); o2.step(); print(l.item(), g.is_sparse, g._nnz(), torch.isinf(m.mag).all().item(), sha(m.w))
print(sha({k: v for k, v in m.state_dict().items() if k != "w"}), sha(torch.view_as_real(m.w)), states(), sha([{k: v for k, v in st.items() if not (isinstance(v, torch.Tensor) and v.is_complex())} for st in o2.state.values()]))
