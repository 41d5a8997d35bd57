"""Deep equilibrium model (implicit-layers tutorial): Anderson in forward, and a hook of the backward that solves for the gradient with autograd.grad."""
# PRELUDE
seed(49)


def anderson(f, x0, m=4, lam=1e-4, n=20, tol=1e-4, beta=1.0):
    b, d = x0.shape
    X, Fx = torch.zeros(b, m, d), torch.zeros(b, m, d)
    X[:, 0], Fx[:, 0] = x0, f(x0)
    X[:, 1], Fx[:, 1] = Fx[:, 0], f(Fx[:, 0])
    H = torch.zeros(b, m + 1, m + 1)
    H[:, 0, 1:] = H[:, 1:, 0] = 1
    y = torch.zeros(b, m + 1, 1)
    y[:, 0] = 1
    for k in range(2, n):
        q = min(k, m)
        G = Fx[:, :q] - X[:, :q]
        H[:, 1:q + 1, 1:q + 1] = torch.bmm(G, G.transpose(1, 2)) + lam * torch.eye(q)
        al = torch.linalg.solve(H[:, :q + 1, :q + 1], y[:, :q + 1])[:, 1:q + 1, 0]
        X[:, k % m] = beta * (al[:, None] @ Fx[:, :q])[:, 0] + (1 - beta) * (al[:, None] @ X[:, :q])[:, 0]
        Fx[:, k % m] = f(X[:, k % m])
        if (Fx[:, k % m] - X[:, k % m]).norm() / (1e-5 + Fx[:, k % m].norm()) < tol:
            break
    return X[:, k % m], k


class Cell(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.a, self.n = nn.Linear(d, d), nn.LayerNorm(d)

    def forward(self, z, x):
        return self.n(torch.tanh(self.a(z) * 0.5 + x))


class DEQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.iters = Cell(), []

    def forward(self, x):
        with torch.no_grad():
            z, k = anderson(lambda z: self.f(z, x), torch.zeros_like(x))
        self.iters.append(k)
        z = self.f(z, x)
        if z.requires_grad:
            z0 = z.clone().detach().requires_grad_()
            f0 = self.f(z0, x)

            def hook(g):
                out, k = anderson(lambda y: torch.autograd.grad(f0, z0, y, retain_graph=True)[0] + g, g)
                self.iters.append(-k)
                return out

            z.register_hook(hook)
        return z


net = nn.Sequential(nn.Linear(5, 12), DEQ(), nn.Linear(12, 2))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(8):
    loss = F.cross_entropy(net(torch.randn(16, 5)), torch.randint(0, 2, (16,)))
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss))
print(net[1].iters)
end(net, opt)
