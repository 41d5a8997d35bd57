"""A Kolmogorov-Arnold network: B-spline bases, update_grid in the middle of training by least squares (weights and grid buffers overwritten from activations seen by the forward), regularization by entropy, LBFGS then AdamW, pruning of edges by a mask."""
# PRELUDE
class KANLinear(nn.Module):
    def __init__(self, i, o, n=4, k=3):
        super().__init__()
        self.n, self.k = n, k
        step = 2 / n
        self.register_buffer("grid", (torch.arange(-k, n + k + 1) * step - 1).expand(i, -1).contiguous())
        self.base = nn.Parameter(torch.randn(o, i) * 0.2)
        self.spline = nn.Parameter(torch.randn(o, i, n + k) * 0.1)
        self.register_buffer("mask", torch.ones(o, i))

    def bases(self, x):
        g, x = self.grid, x.unsqueeze(-1)
        b = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
        for k in range(1, self.k + 1):
            b = (x - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)]) * b[..., :-1] + (g[:, k + 1 :] - x) / (g[:, k + 1 :] - g[:, 1:-k]) * b[..., 1:]
        return b.contiguous()

    @torch.no_grad()
    def update_grid(self, x):
        y = torch.einsum("bik,oik->bio", self.bases(x), self.spline)
        xs = torch.sort(x, 0)[0]
        inner = xs[torch.linspace(0, len(x) - 1, self.n + 1).long()]
        uniform = torch.linspace(0, 1, self.n + 1)[:, None] * (xs[-1] - xs[0] + 0.02) + xs[0] - 0.01
        g = 0.5 * inner + 0.5 * uniform
        h = (g[-1] - g[0]) / self.n
        g = torch.cat([g[:1] - h * torch.arange(self.k, 0, -1)[:, None], g, g[-1:] + h * torch.arange(1, self.k + 1)[:, None]])
        self.grid.copy_(g.t())
        a = self.bases(x).transpose(0, 1)
        sol = torch.linalg.lstsq(a.double(), y.transpose(0, 1).double(), driver="gelsd").solution.float()
        self.spline.data.copy_(sol.permute(2, 0, 1))

    def forward(self, x, update=False):
        if update:
            self.update_grid(x)
        return F.linear(F.silu(x), self.base * self.mask) + torch.einsum("bik,oik->bo", self.bases(x), self.spline * self.mask[..., None])

    def reg(self):
        l = self.spline.abs().mean(-1)
        p = l / l.sum()
        return l.sum() - (p * p.log()).sum()


class KAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([KANLinear(8, 6), KANLinear(6, 4)])

    def forward(self, x, update=False):
        for l in self.layers:
            x = torch.tanh(l(x, update))
        return x


m = KAN()
W(m)
opt = torch.optim.LBFGS(m.parameters(), 0.5, max_iter=3, line_search_fn="strong_wolfe")
for s in range(3):
    x, y = batch(s, 24)

    def closure():
        opt.zero_grad()
        loss = F.mse_loss(m(torch.tanh(x)), y) + 1e-3 * sum(l.reg() for l in m.layers)
        loss.backward()
        return loss

    print(s, float(opt.step(closure)).hex(), M(m))
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for s in range(9):
    x, y = batch(s, 24)
    if s % 3 == 0:
        with torch.no_grad():
            m(torch.tanh(x), update=True)
        print("grid", H([l.grid for l in m.layers]))
    opt.zero_grad()
    loss = F.mse_loss(m(torch.tanh(x)), y) + 1e-3 * sum(l.reg() for l in m.layers)
    loss.backward()
    opt.step()
    if s == 5:
        for l in m.layers:
            l.mask.copy_((l.spline.abs().mean(-1) > l.spline.abs().mean() * 0.8).float())
    print(s, loss.item().hex(), M(m))
