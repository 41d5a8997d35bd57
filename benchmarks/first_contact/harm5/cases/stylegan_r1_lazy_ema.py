"""StyleGAN2: modulated convolutions with grouped weights, noise injection, equalized rate, lazy R1 and path-length regularisation (second derivatives), mixing, EMA accumulate, minibatch std."""
# PRELUDE
import math
class ELin(nn.Module):
    def __init__(self, i, o, b=0.0):
        super().__init__()
        self.weight, self.bias, self.s = nn.Parameter(torch.randn(o, i)), nn.Parameter(torch.full((o,), b)), 1 / math.sqrt(i)
    def forward(self, x): return F.linear(x, self.weight * self.s, self.bias)
class Mod(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight, self.st, self.nw = nn.Parameter(torch.randn(1, o, i, 3, 3)), ELin(8, i, 1.0), nn.Parameter(torch.zeros(1))
    def forward(self, x, w):
        b, c, h, _ = x.shape
        k = self.weight / math.sqrt(c * 9) * self.st(w).view(b, 1, c, 1, 1)
        k = k * torch.rsqrt(k.pow(2).sum([2, 3, 4]) + 1e-8).view(b, -1, 1, 1, 1)
        x = F.conv2d(x.reshape(1, b * c, h, h), k.view(-1, c, 3, 3), padding=1, groups=b).view(b, -1, h, h)
        return F.leaky_relu(x + self.nw * x.new_empty(b, 1, h, h).normal_(), 0.2) * 2 ** 0.5
class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.map, self.const = nn.Sequential(ELin(8, 8), nn.LeakyReLU(0.2), ELin(8, 8)), nn.Parameter(torch.randn(1, 6, 4, 4))
        self.c1, self.c2, self.rgb = Mod(6, 6), Mod(6, 6), nn.Conv2d(6, 3, 1)
    def forward(self, zs, cut=1):
        ws = torch.stack([self.map(z) for z in zs], 1)
        x = self.c1(self.const.expand(len(zs[0]), -1, -1, -1), ws[:, 0])
        x = self.c2(F.interpolate(x, scale_factor=2, mode="bilinear"), ws[:, -1])
        return self.rgb(x), ws
class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.o = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(7, 6, 3, 2, 1), ELin(24, 1)
    def forward(self, x):
        x = F.leaky_relu(self.a(x), 0.2)
        s = torch.sqrt(x.var(0, unbiased=False) + 1e-8).mean().expand(len(x), 1, *x.shape[2:])
        return self.o(F.leaky_relu(self.b(torch.cat([x, s], 1)), 0.2).flatten(1))
g, d, ge = G(), D(), G()
ge.load_state_dict(g.state_dict())
W(g), W(d)
og, od = (torch.optim.Adam(x.parameters(), 2e-3, betas=(0.0, 0.99)) for x in (g, d))
mean_pl = 0
for s in range(6):
    real = torch.randn(4, 3, 8, 8)
    z = lambda: [torch.randn(4, 8)] if random.random() > 0.5 else [torch.randn(4, 8), torch.randn(4, 8)]
    g.requires_grad_(False), d.requires_grad_(True)
    ld = F.softplus(d(g(z())[0])).mean() + F.softplus(-d(real)).mean()
    d.zero_grad()
    ld.backward()
    od.step()
    if s % 2 == 0:
        real.requires_grad_(True)
        p = d(real)
        gr, = torch.autograd.grad(p.sum(), real, create_graph=True)
        d.zero_grad()
        (5 * gr.pow(2).reshape(4, -1).sum(1).mean() * 2 + 0 * p[0, 0]).backward()
        od.step()
    g.requires_grad_(True), d.requires_grad_(False)
    lg = F.softplus(-d(g(z())[0])).mean()
    g.zero_grad()
    lg.backward()
    og.step()
    if s % 3 == 0:
        im, la = g([torch.randn(4, 8)])
        gr, = torch.autograd.grad((im * torch.randn_like(im) / 8).sum(), la, create_graph=True)
        pl = torch.sqrt(gr.pow(2).sum(2).mean(1))
        pm = mean_pl + 0.01 * (pl.mean() - mean_pl)
        g.zero_grad()
        ((pl - pm).pow(2).mean() * 2 + 0 * im[0, 0, 0, 0]).backward()
        og.step()
        mean_pl = pm.detach()
    with torch.no_grad():
        for a, b in zip(ge.parameters(), g.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
    print(s, float(ld.detach()).hex(), float(lg.detach()).hex())
print(M(g), M(d), M(ge), R())
