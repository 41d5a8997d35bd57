"""Domain-adversarial training with a gradient-reversal function whose strength follows a schedule, two heads, a CORAL and an MMD penalty, features of two domains in one batch, BatchNorm statistics of one domain only."""
# PRELUDE
class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a):
        ctx.a = a
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.a, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.features = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Dropout(0.2))
        self.label, self.domain = nn.Linear(16, 3), nn.Sequential(nn.Linear(16, 8), nn.ReLU(True), nn.Linear(8, 2))

    def forward(self, x, a):
        f = self.features(x)
        return self.label(f), self.domain(Reverse.apply(f, a)), f


def mmd(a, b):
    d = lambda p, q: torch.exp(-torch.cdist(p, q).square() / 8).mean()
    return d(a, a) + d(b, b) - 2 * d(a, b)


def coral(a, b):
    return (torch.cov(a.t()) - torch.cov(b.t())).square().sum() / (4 * a.shape[1] ** 2)


m = DANN()
W(m)
opt = torch.optim.SGD([{"params": m.features.parameters(), "lr": 0.01}, {"params": [*m.label.parameters(), *m.domain.parameters()], "lr": 0.1}], momentum=0.9, nesterov=True)
for s in range(10):
    p = s / 10
    a = 2 / (1 + np.exp(-10 * p)) - 1
    for g in opt.param_groups:
        g["lr"] = g["lr"] / (1 + 0.1 * p) ** 0.75
    xs, xt = batch(s)[0], batch(s + 100)[0] + 1
    ys = torch.arange(6) % 3
    ls, ds, fs = m(xs, a)
    m.features[1].momentum = 0.0
    _, dt, ft = m(xt, a)
    m.features[1].momentum = 0.1
    loss = F.cross_entropy(ls, ys) + F.cross_entropy(ds, torch.zeros(6, dtype=torch.long)) + F.cross_entropy(dt, torch.ones(6, dtype=torch.long)) + 0.3 * mmd(fs, ft) + coral(fs, ft)
    opt.zero_grad(set_to_none=s % 2 == 0)
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), M(m), R())
print(H(opt.state_dict()))
