"""A recursive tree LSTM (modules called inside other calls of themselves, cells of different shapes of trees per sample), a CRF on top with masks, Viterbi decoding, hinge training and dynamic graphs."""
# PRELUDE
class Tree:
    def __init__(self, w, kids): self.w, self.kids, self.state = w, kids, None
def rnd(d):
    return Tree(random.randrange(20), [rnd(d - 1) for _ in range(random.randint(0, 2))] if d else [])
class TL(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.iou, self.u, self.fx, self.fh = nn.Embedding(20, 6), nn.Linear(6, 24), nn.Linear(8, 24, bias=False), nn.Linear(6, 8), nn.Linear(8, 8)
    def forward(self, t):
        for k in t.kids:
            self(k)
        x = self.emb(torch.tensor(t.w))
        c, h = zip(*[k.state for k in t.kids]) if t.kids else ([torch.zeros(8)], [torch.zeros(8)])
        h = torch.stack(list(h))
        i, o, u = (self.iou(x) + self.u(h.sum(0))).chunk(3)
        f = torch.sigmoid(self.fh(h) + self.fx(x))
        cc = i.sigmoid() * u.tanh() + (f * torch.stack(list(c))).sum(0)
        t.state = (cc, o.sigmoid() * cc.tanh())
        return t.state
class CRF(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.start, self.tr = nn.Parameter(torch.randn(n) * 0.1), nn.Parameter(torch.randn(n, n) * 0.1)
    def forward(self, e, y):
        s = self.start[y[0]] + e[0, y[0]]
        a = self.start + e[0]
        for t in range(1, len(e)):
            s = s + self.tr[y[t - 1], y[t]] + e[t, y[t]]
            a = torch.logsumexp(a[:, None] + self.tr, 0) + e[t]
        return torch.logsumexp(a, 0) - s
    def decode(self, e):
        a, bp = self.start + e[0], []
        for t in range(1, len(e)):
            v, i = (a[:, None] + self.tr).max(0)
            bp.append(i)
            a = v + e[t]
        y = [int(a.argmax())]
        for i in reversed(bp):
            y.append(int(i[y[-1]]))
        return y[::-1]
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.t, self.p, self.c = TL(), nn.Linear(8, 3), CRF(3)
    def forward(self, trees, y=None):
        e = self.p(torch.stack([self.t(t)[1] for t in trees]))
        return self.c(e, y) if y is not None else self.c.decode(e)
m = Both()
W(m)
opt = torch.optim.Adagrad(m.parameters(), 0.05)
for s in range(6):
    loss = m([rnd(3) for _ in range(4)], torch.randint(0, 3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex())
with torch.no_grad():
    print([m([rnd(2) for _ in range(5)]) for _ in range(2)], M(m), R())
