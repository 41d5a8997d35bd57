"""DARTS: an unrolled inner step built as a new model from flat theta, second-order term by finite differences that adds to weights in place, mixed operations, Gumbel discretisation at the end."""
# PRELUDE
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.ops = nn.ModuleList([nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8)), nn.Identity()])
    def forward(self, x, w):
        return sum(a * o(x) for a, o in zip(w, self.ops))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.out = nn.ModuleList(Mixed() for _ in range(2)), nn.Linear(8, 4)
        self.alphas = torch.nn.Parameter(1e-3 * torch.randn(2, 3))
    def weights(self): return [p for n, p in self.named_parameters() if n != "alphas"]
    def forward(self, x):
        for c, a in zip(self.cells, self.alphas.softmax(-1)):
            x = torch.tanh(c(x, a))
        return self.out(x)
    def loss(self, b): return F.mse_loss(self(b[0]), b[1])
    def new(self):
        n = Net()
        n.alphas.data.copy_(self.alphas.data)
        return n
m = Net()
W(m)
opt, aopt = torch.optim.SGD(m.weights(), 0.05, momentum=0.9), torch.optim.Adam([m.alphas], 1e-2)
for s in range(4):
    tr, va = batch(s), batch(100 + s)
    g = torch.autograd.grad(m.loss(tr), m.weights())
    with torch.no_grad():
        theta = torch.cat([(p - 0.05 * (gg + 0.9 * opt.state[p].get("momentum_buffer", torch.zeros_like(p)))).flatten() for p, gg in zip(m.weights(), g)])
    u = m.new()
    W(u)
    o = 0
    for p in u.weights():
        p.data.copy_(theta[o:o + p.numel()].view_as(p))
        o += p.numel()
    u.loss(va).backward()
    vec = [p.grad.data for p in u.weights()]
    eps = 0.01 / torch.cat([v.flatten() for v in vec]).norm()
    for p, v in zip(m.weights(), vec):
        p.data.add_(v, alpha=float(eps))
    gp = torch.autograd.grad(m.loss(tr), m.alphas)[0]
    for p, v in zip(m.weights(), vec):
        p.data.sub_(v, alpha=2 * float(eps))
    gn = torch.autograd.grad(m.loss(tr), m.alphas)[0]
    for p, v in zip(m.weights(), vec):
        p.data.add_(v, alpha=float(eps))
    m.alphas.grad = u.alphas.grad - 0.05 * (gp - gn) / (2 * eps)
    aopt.step()
    opt.zero_grad()
    l = m.loss(tr)
    l.backward()
    nn.utils.clip_grad_norm_(m.weights(), 5)
    opt.step()
    print(s, float(l.detach()).hex(), H(m.alphas))
print(F.gumbel_softmax(m.alphas.detach(), hard=True).tolist(), M(m), R())
