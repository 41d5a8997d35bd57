"""Knowledge-graph embeddings: nn.Embedding with max_norm (renormalized in place by the forward), scale_grad_by_freq and padding_idx, EmbeddingBag with offsets and per-sample weights, margin ranking with negative samples, rows normalized by hand before each epoch, a frozen from_pretrained table."""
# PRELUDE
class TransE(nn.Module):
    def __init__(self, n=30, r=5, d=8):
        super().__init__()
        torch.manual_seed(1)
        self.e = nn.Embedding(n, d, max_norm=1.0, scale_grad_by_freq=True)
        self.r = nn.Embedding(r, d, padding_idx=0, max_norm=2.0)
        self.bag = nn.EmbeddingBag(n, d, mode="sum", max_norm=1.5)
        self.fixed = nn.Embedding.from_pretrained(torch.randn(n, d), freeze=True, max_norm=0.7)

    def forward(self, h, r, t):
        w = torch.ones(len(h) * 2) * 0.5
        ctx = self.bag(torch.stack([h, t], 1).view(-1), torch.arange(0, 2 * len(h), 2), per_sample_weights=w)
        return (self.e(h) + self.r(r) - self.e(t) + 0.1 * ctx + 0.01 * self.fixed(h)).norm(p=1, dim=1)


m = TransE()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(12):
    if s % 4 == 0:
        with torch.no_grad():
            m.r.weight.div_(m.r.weight.norm(dim=1, keepdim=True).clamp(min=1e-6))
            m.r.weight[0] = 0
    h, t = torch.randint(30, (10,)), torch.randint(30, (10,))
    r = torch.randint(0, 5, (10,))
    bad = t.clone()
    swap = torch.rand(10) < 0.5
    bad[swap] = torch.randint(30, (int(swap.sum()),))
    v = m.e.weight._version, m.fixed.weight._version
    loss = F.margin_ranking_loss(m(h, r, t), m(h, r, bad), -torch.ones(10), margin=1.0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), m.e.weight._version - v[0], m.fixed.weight._version - v[1], M(m), m.r.weight.grad[0].abs().sum().item())
sparse = nn.EmbeddingBag(30, 8, mode="mean", sparse=True, max_norm=1.0)
W(sparse)
so = torch.optim.SparseAdam(sparse.parameters(), 0.05)
for s in range(3):
    so.zero_grad()
    sparse(torch.randint(30, (5, 3))).square().sum().backward()
    so.step()
    print(H(sparse.weight), sparse.weight.grad.is_sparse, H(so.state_dict()))
try:
    w = m.e.weight * 1
    F.embedding(torch.tensor([1]), w, max_norm=0.01).sum().backward()
except RuntimeError as e:
    print(str(e)[:100])
print(R())
