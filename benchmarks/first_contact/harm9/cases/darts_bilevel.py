"""DARTS: architecture weights by second order with finite differences that move w.data and back; candidates masked by -inf logits as they are dropped."""
# PRELUDE
import copy
seed(96)
OPS = [lambda d: nn.Identity(), lambda d: nn.Linear(d, d), lambda d: nn.Sequential(nn.Linear(d, d), nn.Tanh()), lambda d: nn.Sequential(nn.ReLU(), nn.Linear(d, d, bias=False))]


class Super(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.s, self.o = nn.Linear(5, d), nn.Linear(d, 2)
        self.e = nn.ModuleList(nn.ModuleList(f(d) for f in OPS) for _ in range(3))
        self.alpha = nn.Parameter(1e-3 * torch.randn(3, 4))
        self.register_buffer("drop", torch.zeros(3, 4))

    def weights(self):
        return [p for n, p in self.named_parameters() if n != "alpha"]

    def forward(self, x):
        h = self.s(x)
        for a, d, ops in zip(self.alpha, self.drop, self.e):
            w = (a + d).softmax(0)
            h = sum(w[i] * op(h) for i, op in enumerate(ops))
        return self.o(h)


net = Super()
watch(net)
wopt = torch.optim.SGD(net.weights(), 0.05, momentum=0.9, weight_decay=3e-4)
aopt = torch.optim.Adam([net.alpha], 3e-3, betas=(0.5, 0.999))
L = lambda m, b: F.cross_entropy(m(b[0]), b[1])
batch = lambda: (torch.randn(16, 5), torch.randint(0, 2, (16,)))
for step in range(10):
    tr, va = batch(), batch()
    un = copy.deepcopy(net)
    g = torch.autograd.grad(L(un, tr), un.weights(), allow_unused=True)
    with torch.no_grad():
        for p, q in zip(un.weights(), g):
            if q is not None:
                p -= 0.05 * q
    gs = torch.autograd.grad(L(un, va), [un.alpha] + un.weights(), allow_unused=True)
    da, dw = gs[0], [torch.zeros_like(p) if v is None else v for p, v in zip(un.weights(), gs[1:])]
    eps = 0.01 / torch.cat([v.flatten() for v in dw]).norm()
    hs = []
    for sign in (1, -2):
        for p, v in zip(net.weights(), dw):
            p.data.add_(sign * eps * v)
        hs.append(torch.autograd.grad(L(net, tr), net.alpha)[0])
    for p, v in zip(net.weights(), dw):
        p.data.add_(eps * v)
    aopt.zero_grad()
    net.alpha.grad = da - 0.05 * (hs[0] - hs[1]) / (2 * eps)
    aopt.step()
    wopt.zero_grad(); loss = L(net, tr); loss.backward(); nn.utils.clip_grad_norm_(net.weights(), 5); wopt.step()
    if step in (4, 7):
        with torch.no_grad():
            i = (net.alpha + torch.where(net.drop < 0, math.inf, 0.0)).argmin(1)
            net.drop[torch.arange(3), i] = -math.inf
    print(step, dig(loss, net.alpha, net.drop))
end(net, wopt, aopt.state_dict()["state"])
