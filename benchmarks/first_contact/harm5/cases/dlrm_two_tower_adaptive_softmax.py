"""DLRM: EmbeddingBags with sparse gradients and per-sample weights, offsets, interaction by bmm, two optimizers; two towers with in-batch negatives and a hash trick; a language model with AdaptiveLogSoftmaxWithLoss and weight drop."""
# PRELUDE
class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.ModuleList(nn.EmbeddingBag(n, 8, mode="sum", sparse=True) for n in (30, 50))
        self.bot, self.top = net(1, 4, 12, 8), net(2, 11, 12, 1)
    def forward(self, d, idx, off, w):
        x = self.bot(d)
        z = torch.stack([x] + [e(i, o, per_sample_weights=ww) for e, i, o, ww in zip(self.emb, idx, off, w)], 1)
        zz = torch.bmm(z, z.transpose(1, 2))
        li, lj = torch.tril_indices(3, 3, -1)
        return self.top(torch.cat([x, zz[:, li, lj]], 1))[:, 0]
m = DLRM()
W(m)
os_, od = torch.optim.SparseAdam(m.emb.parameters(), 1e-2), torch.optim.Adagrad([*m.bot.parameters(), *m.top.parameters()], 1e-2)
for s in range(5):
    off = [torch.tensor([0, 2, 2, 5]), torch.tensor([0, 1, 4, 6])]
    idx = [torch.randint(0, 30, (7,)), torch.randint(0, 50, (8,))]
    loss = F.binary_cross_entropy_with_logits(m(torch.randn(4, 4), idx, off, [torch.rand(7), torch.rand(8)]), torch.randint(0, 2, (4,)).float())
    os_.zero_grad(), od.zero_grad()
    loss.backward()
    print(s, float(loss.detach()).hex(), m.emb[0].weight.grad.is_sparse, m.emb[0].weight.grad._nnz())
    os_.step(), od.step()
u, v = nn.EmbeddingBag(40, 8, padding_idx=0, max_norm=1.0), nn.Sequential(nn.Embedding(40, 8), nn.Flatten(), nn.Linear(16, 8))
tt = nn.ModuleDict({"u": u, "v": v})
W(tt)
o = torch.optim.Adagrad(tt.parameters(), 0.05)
for s in range(4):
    a, b = F.normalize(u(torch.randint(0, 40, (6, 3))), dim=1), F.normalize(v(torch.randint(0, 40, (6, 2))), dim=1)
    loss = F.cross_entropy(a @ b.t() / 0.1 - torch.rand(6).log(), torch.arange(6))
    o.zero_grad()
    loss.backward()
    o.step()
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.r = nn.Embedding(60, 12), nn.GRU(12, 12, 2, batch_first=True, dropout=0.1)
        self.s = nn.AdaptiveLogSoftmaxWithLoss(12, 60, [10, 30], div_value=2.0, head_bias=True)
    def forward(self, t, h=None):
        y, h = self.r(self.e(t), h)
        return self.s(y[:, :-1].flatten(0, 1), t[:, 1:].flatten()), h
lm = LM()
W(lm)
o = torch.optim.ASGD(lm.parameters(), 0.1, t0=2)
h = None
for s in range(5):
    (_, loss), h = lm(torch.randint(0, 60, (3, 7)), h)
    h = h.detach()
    o.zero_grad()
    loss.backward()
    o.step()
    print(float(loss.detach()).hex(), H(h))
with torch.no_grad():
    print(H(lm.s.log_prob(torch.ones(2, 12)), lm.s.predict(torch.ones(2, 12))), M(tt), M(lm), H(dict(m.state_dict())), R())
