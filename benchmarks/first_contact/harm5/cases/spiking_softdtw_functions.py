"""Custom autograd in the wild: surrogate spikes with state kept in the module and reset, soft-DTW whose forward and backward are numpy loops (inf borders inside), a gradient reversal layer, straight-through top-k with once_differentiable."""
# PRELUDE
from torch.autograd.function import once_differentiable
class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u):
        ctx.save_for_backward(u)
        return (u > 0).float()
    @staticmethod
    def backward(ctx, g):
        u, = ctx.saved_tensors
        return g / (25 * u.abs() + 1) ** 2
class Leaky(nn.Module):
    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(0.9))
        self.mem = None
    def forward(self, i):
        self.mem = i if self.mem is None else self.beta.clamp(0, 1) * self.mem + i - (self.mem > 1).float().detach()
        return Spike.apply(self.mem - 1)
class SDTW(torch.autograd.Function):
    @staticmethod
    def forward(ctx, D):
        d = D.detach().numpy().astype(np.float64)
        n, m_ = d.shape
        r = np.full((n + 2, m_ + 2), np.inf)
        r[0, 0] = 0
        for j in range(1, m_ + 1):
            for i in range(1, n + 1):
                z = -np.array([r[i - 1, j - 1], r[i - 1, j], r[i, j - 1]])
                r[i, j] = d[i - 1, j - 1] - (z.max() + np.log(np.exp(z - z.max()).sum()))
        ctx.save_for_backward(D, torch.from_numpy(r))
        return torch.tensor(r[n, m_], dtype=D.dtype)
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        D, r = ctx.saved_tensors
        n, m_ = D.shape
        d = np.zeros((n + 2, m_ + 2))
        d[1:-1, 1:-1] = D.numpy()
        r = r.numpy().copy()
        r[:, -1] = r[-1, :] = -np.inf
        r[-1, -1] = r[-2, -2]
        e = np.zeros_like(r)
        e[-1, -1] = 1
        for j in range(m_, 0, -1):
            for i in range(n, 0, -1):
                a, b, c = (np.exp(r[p] - r[i, j] - d[p]) for p in ((i + 1, j), (i, j + 1), (i + 1, j + 1)))
                e[i, j] = e[i + 1, j] * a + e[i, j + 1] * b + e[i + 1, j + 1] * c
        return g * torch.from_numpy(e[1:-1, 1:-1]).to(D.dtype)
class Rev(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a):
        ctx.a = a
        return x.view_as(x)
    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.a, None
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.l1, self.b, self.l2, self.dom = nn.Linear(8, 12), Leaky(), nn.Linear(12, 3), Leaky(), nn.Linear(12, 2)
    def forward(self, x, al):
        self.l1.mem = self.l2.mem = None
        out, h = [], None
        for t in range(5):
            h = self.l1(self.a(x))
            self.l2(self.b(h))
            out.append(self.l2.mem)
        return torch.stack(out, 1), self.dom(Rev.apply(h, al))
m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(5):
    x, _ = batch(s)
    o, d = m(x, 0.1 * s)
    tgt = torch.randn(6, 4, 3)
    loss = sum(SDTW.apply(torch.cdist(o[i], tgt[i]) ** 2) for i in range(6)) / 6 + F.cross_entropy(d, torch.arange(6) % 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex(), M(m))
print(R())
