"""MoCo: a momentum encoder changed in place by lerp_, a queue buffer written in place with a pointer, shuffled batch norm, InfoNCE with temperature; buffers, weights of both."""
# PRELUDE
class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = (nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6)) for _ in range(2))
        for a, b in zip(self.q.parameters(), self.k.parameters()):
            b.data.copy_(a.data)
            b.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(6, 24), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            for x, y in zip(self.q.parameters(), self.k.parameters()):
                y.data = y.data * 0.99 + x.data * 0.01
            perm = torch.randperm(len(b))
            k = F.normalize(self.k(b[perm]), dim=1)[perm.argsort()]
        pos = torch.einsum("nc,nc->n", q, k)[:, None]
        neg = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        with torch.no_grad():
            p = int(self.ptr)
            self.queue[:, p : p + len(k)] = k.T
            self.ptr[0] = (p + len(k)) % 24
        return torch.cat([pos, neg], 1) / 0.07


m = MoCo()
W(m)
opt = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.05, momentum=0.9, weight_decay=1e-4)
for s in range(6):
    x = batch(s)[0]
    loss = F.cross_entropy(m(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)), torch.zeros(6, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), H(m.queue, m.ptr), R())
print(M(m))
