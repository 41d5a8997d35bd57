"""Reversible blocks: a custom Function frees the activations' storages in forward and rebuilds inputs from outputs in backward (MemCNN, RevNet)."""
# PRELUDE
class Rev(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, f, g, *weights):
        ctx.f, ctx.g, ctx.weights = f, g, weights
        with torch.no_grad():
            a, b = x.chunk(2, 1)
            ya = a + f(b)
            yb = b + g(ya)
            y = torch.cat([ya, yb], 1)
        ctx.x_storage = x
        if x.grad_fn is not None or True:
            x.untyped_storage().resize_(0)
        ctx.y = y.detach()
        return y

    @staticmethod
    def backward(ctx, gy):
        y = ctx.y
        f, g = ctx.f, ctx.g
        with torch.enable_grad():
            ya, yb = (t.detach() for t in y.chunk(2, 1))
            ya.requires_grad_()
            gya = g(ya)
            gya_out = gya
            da, db = (t.contiguous() for t in gy.chunk(2, 1))
            gg = torch.autograd.grad(gya_out, [ya, *g.parameters()], db)
            da = da + gg[0]
            b = (yb - gya).detach().requires_grad_()
            fb = f(b)
            gf = torch.autograd.grad(fb, [b, *f.parameters()], da)
            a = (ya - fb).detach()
        x = ctx.x_storage
        x.untyped_storage().resize_(x.numel() * x.element_size())
        with torch.no_grad():
            x.set_(torch.cat([a, b.detach()], 1)) if False else x.copy_(torch.cat([a, b.detach()], 1))
        return torch.cat([da, db + gf[0]], 1), None, None, *gf[1:], *gg[1:]


class RevBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)) for _ in range(2))

    def forward(self, x):
        return Rev.apply(x, self.f, self.g, *self.f.parameters(), *self.g.parameters())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.blocks, self.o = nn.Linear(8, 8), nn.ModuleList(RevBlock() for _ in range(4)), nn.Linear(8, 4)

    def forward(self, x):
        x = self.i(x)
        for b in self.blocks:
            x = b(x * 1.0)
        return self.o(x)


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.02)
for s in range(5):
    print(train(m, opt, 1, s))
print(M(m), R())
