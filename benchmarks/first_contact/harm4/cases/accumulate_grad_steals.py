"""AccumulateGrad keeps a gradient's memory where nobody else holds it and copies otherwise: addresses, strides and aliases of .grad stay the same."""
# PRELUDE
ptr = {}


class Give(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, x):
        ctx.save_for_backward(w, x)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        w, x = ctx.saved_tensors
        gw = g.t() @ x
        ptr["w"] = gw.data_ptr()
        return gw, g @ w


class Lin(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 8) * 0.2)

    def forward(self, x):
        return Give.apply(self.w, x)


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p):
        return p.sum()

    @staticmethod
    def backward(ctx, g):
        Keep.buffer = torch.full((5,), 2.0) * g
        return Keep.buffer


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.p, self.c = Lin(), nn.Parameter(torch.ones(5)), nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def forward(self, x, im):
        return self.lin(x).square().mean() + Keep.apply(self.p) + self.c(im).square().mean()


m = Two()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.01)
im = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
for s in range(5):
    opt.zero_grad(set_to_none=True)
    m(batch(s)[0], im).backward()
    print(s, m.lin.w.grad.data_ptr() == ptr["w"], m.p.grad.data_ptr() == Keep.buffer.data_ptr(), m.c.weight.grad.stride(), m.c.weight.grad.is_contiguous(memory_format=torch.channels_last))
    Keep.buffer.mul_(3)
    print(m.p.grad.tolist())
    opt.step()
m(batch(6)[0], im).backward()
print(m.p.grad.data_ptr() == Keep.buffer.data_ptr(), M(m), R())
