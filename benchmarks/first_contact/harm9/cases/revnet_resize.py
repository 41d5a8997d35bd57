"""Reversible blocks that free the storage of their input after forward and rebuild it in backward (memcnn)."""
# PRELUDE
seed(1)


class Invert(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, g, x, *weights):
        with torch.no_grad():
            a, b = x.chunk(2, 1)
            y1 = a + f(b)
            y2 = b + g(y1)
            out = torch.cat([y1, y2], 1)
        ctx.f, ctx.g, ctx.n = f, g, len(weights)
        ctx.size = x.untyped_storage().nbytes()
        ctx.x, ctx.out = x, out
        x.untyped_storage().resize_(0)
        return out.detach_()

    @staticmethod
    def backward(ctx, grad):
        x, out = ctx.x, ctx.out
        with torch.no_grad():
            y1, y2 = out.chunk(2, 1)
            b = y2 - ctx.g(y1)
            a = y1 - ctx.f(b)
            x.untyped_storage().resize_(ctx.size)
            x.set_(x.untyped_storage(), 0, torch.Size((a.shape[0], a.shape[1] * 2)))
            x.copy_(torch.cat([a, b], 1))
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            a, b = z.chunk(2, 1)
            y1 = a + ctx.f(b)
            y2 = b + ctx.g(y1)
            w = list(ctx.f.parameters()) + list(ctx.g.parameters())
            gs = torch.autograd.grad(torch.cat([y1, y2], 1), [z] + w, grad)
        return (None, None, gs[0], *gs[1:])


class Rev(nn.Module):
    def __init__(self, d):
        super().__init__()
        mk = lambda: nn.Sequential(nn.Linear(d // 2, d), nn.Tanh(), nn.Linear(d, d // 2))
        self.f, self.g = mk(), mk()

    def forward(self, x):
        return Invert.apply(self.f, self.g, x, *self.f.parameters(), *self.g.parameters())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.body, self.out = nn.Linear(6, 16), nn.ModuleList(Rev(16) for _ in range(4)), nn.Linear(16, 2)

    def forward(self, x):
        x = self.inp(x) * 1.0
        for b in self.body:
            x = b(x)
        return self.out(x)


net = Net()
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(15):
    x, y = torch.randn(32, 6), torch.randint(0, 2, (32,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, dig(loss))
end(net, opt)
