"""A restricted Boltzmann machine trained by contrastive divergence (no backward at all: gradients are assigned to .grad), persistent chains, then a deep belief net fine-tuned by backward with weights tied to it, a free-energy gradient as a check."""
# PRELUDE
class RBM(nn.Module):
    def __init__(self, v, h):
        super().__init__()
        self.w = nn.Parameter(torch.randn(v, h) * 0.1)
        self.a, self.b = nn.Parameter(torch.zeros(v)), nn.Parameter(torch.zeros(h))
        self.register_buffer("chain", torch.bernoulli(torch.full((6, v), 0.5)))

    def up(self, v):
        p = torch.sigmoid(v @ self.w + self.b)
        return p, torch.bernoulli(p)

    def down(self, h):
        p = torch.sigmoid(h @ self.w.t() + self.a)
        return p, torch.bernoulli(p)

    def free_energy(self, v):
        return -(v @ self.a) - F.softplus(v @ self.w + self.b).sum(-1)

    def forward(self, v, k=1):
        p0, h = self.up(v)
        x = self.chain
        for _ in range(k):
            x = self.down(self.up(x)[1])[1]
        self.chain.copy_(x)
        return p0, x, self.up(x)[0]


m = RBM(8, 12)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.5)
for s in range(10):
    v = (batch(s)[0] > 0).float()
    with torch.no_grad():
        p0, x, pk = m(v, 1 + s % 3)
        m.w.grad = -(v.t() @ p0 - x.t() @ pk) / len(v)
        m.a.grad = -(v - x).mean(0)
        m.b.grad = -(p0 - pk).mean(0)
    opt.step()
    print(s, M(m), R())
    if s % 4 == 3:
        kept = [p.grad.clone() for p in m.parameters()]
        g = torch.autograd.grad(m.free_energy(v).mean() - m.free_energy(x).mean(), list(m.parameters()))
        print("free energy", H(g), H(m.free_energy(v).detach()))
top = RBM(12, 6)
W(top)
for s in range(3):
    with torch.no_grad():
        h = m.up((batch(s)[0] > 0).float())[0]
        p0, x, pk = top(h)
        top.w.data.add_(h.t() @ p0 - x.t() @ pk, alpha=0.01)
    print(M(top))
first = nn.Linear(8, 12)
first.weight, first.bias = nn.Parameter(m.w.detach().t()), m.b
deep = nn.Sequential(first, nn.Sigmoid(), nn.Linear(12, 4))
W(deep)
print(train(deep, torch.optim.SGD(deep.parameters(), 0.05), 4), M(deep), M(m), R())
