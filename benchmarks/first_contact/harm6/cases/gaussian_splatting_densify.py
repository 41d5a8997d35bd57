"""Gaussian splatting's way with parameters: each few steps points are cloned, split and pruned, nn.Parameters replaced in the optimizer's groups with their moments cut and joined, opacities reset; gradients of a zero "screen" tensor kept by retain_grad decide."""
# PRELUDE
class Gaussians(nn.Module):
    def __init__(self, n=20):
        super().__init__()
        g = torch.Generator().manual_seed(2)
        self.xyz = nn.Parameter(torch.rand(n, 2, generator=g))
        self.color = nn.Parameter(torch.rand(n, 3, generator=g))
        self.opacity = nn.Parameter(torch.zeros(n, 1))
        self.scale = nn.Parameter(torch.full((n, 1), -2.0))

    def forward(self, grid, screen):
        d = ((grid[:, None] - self.xyz[None] - screen[None]) / self.scale.exp().t()[..., None]).square().sum(-1)
        w = torch.sigmoid(self.opacity).t() * torch.exp(-0.5 * d)
        return w @ self.color


m = Gaussians()
W(m)
opt = torch.optim.Adam([{"params": [getattr(m, n)], "lr": lr, "name": n} for n, lr in (("xyz", 1e-2), ("color", 2e-2), ("opacity", 5e-2), ("scale", 1e-2))], lr=0.0, eps=1e-15)


def replace(fn, moment):
    for g in opt.param_groups:
        old = g["params"][0]
        state = opt.state.pop(old, None)
        new = nn.Parameter(fn(g["name"], old.detach()).requires_grad_(True))
        if state is not None:
            state["exp_avg"], state["exp_avg_sq"] = moment(g["name"], state["exp_avg"]), moment(g["name"], state["exp_avg_sq"])
            opt.state[new] = state
        g["params"][0] = new
        setattr(m, g["name"], new)


grid = torch.stack(torch.meshgrid(torch.linspace(0, 1, 12), torch.linspace(0, 1, 12), indexing="ij"), -1).view(-1, 2)
image = torch.sin(6 * grid[:, :1]).abs() * torch.tensor([1.0, 0.5, 0.2])
acc = torch.zeros(20)
for s in range(24):
    screen = torch.zeros_like(m.xyz, requires_grad=True) + 0
    screen.retain_grad()
    loss = 0.8 * F.l1_loss(m(grid, screen), image) + 0.2 * F.mse_loss(m(grid, screen), image)
    loss.backward()
    with torch.no_grad():
        acc += screen.grad.norm(dim=-1)
        if s % 6 == 5:
            pick = acc > acc.median()
            replace(lambda n, p: torch.cat([p, p[pick] + (0.01 * torch.randn_like(p[pick]) if n == "xyz" else 0)]), lambda n, t: torch.cat([t, torch.zeros_like(t[pick])]))
            keep = torch.sigmoid(m.opacity[:, 0]) > 0.2
            replace(lambda n, p: p[keep].clone(), lambda n, t: t[keep].clone())
            acc = torch.zeros(len(m.xyz))
        if s == 12:
            replace(lambda n, p: torch.minimum(p, torch.full_like(p, -0.1)) if n == "opacity" else p.clone(), lambda n, t: torch.zeros_like(t) if n == "opacity" else t)
    opt.step()
    opt.zero_grad(set_to_none=True)
    print(s, loss.item().hex(), len(m.xyz), M(m))
print(H([opt.state[g["params"][0]] for g in opt.param_groups]), len(opt.state), R())
