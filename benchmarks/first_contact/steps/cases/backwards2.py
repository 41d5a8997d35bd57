"""backwards2.py CASE: Functions in rarer forms; w-... has a wrong backward, r-... a right one."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

CASE = sys.argv[1]
WRONG, C = CASE.startswith("w"), CASE[2:]


class Dirty(Function):  # in place
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * (3 if WRONG else 2)


class Setup(Function):  # setup_context; the constant is a keyword's default
    @staticmethod
    def forward(x, a, b=2.0):
        return torch.sin(a * x) * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.a = inputs[1]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.cos(ctx.a * x) * 2.0 * (1 if WRONG else ctx.a), None


class Sum(Function):  # any number of tensors
    @staticmethod
    def forward(ctx, *xs):
        ctx.n = len(xs)
        return sum((i + 1) * x for i, x in enumerate(xs))

    @staticmethod
    def backward(ctx, g):
        return tuple((i + 1 if not (WRONG and i == 2) else 1) * g for i in range(ctx.n))


class Inner(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x**2 * (2 if WRONG else 3)


class Outer(Function):  # a Function in a Function's forward and backward
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = Inner.apply(ctx.x) + ctx.x
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, g):
        return torch.autograd.grad(ctx.y, ctx.x, g)[0]


class Rare(Function):  # wrong for elements above 1.5 alone
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.clamp(max=1.5).exp() if WRONG else g * x.exp()


class OnlyFloat(Function):  # no float64
    @staticmethod
    def forward(ctx, x, w):
        if x.dtype == torch.float64:
            raise TypeError("float32 alone")
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), (x.t() @ g) * (0.9 if WRONG else 1)


class Huber(Function):  # a loss with a kink in its slope
    @staticmethod
    def forward(ctx, x, y):
        d = x - y
        ctx.save_for_backward(d)
        return torch.where(d.abs() < 1, 0.5 * d**2, d.abs() - 0.5).mean()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        gx = g * d.clamp(-1, 1) / (1 if WRONG else d.numel())
        return gx, -gx


class MaxPool(Function):
    @staticmethod
    def forward(ctx, x):
        y, i = x.view(x.shape[0], -1, 2).max(-1)
        ctx.save_for_backward(i)
        return y

    @staticmethod
    def backward(ctx, g):
        (i,) = ctx.saved_tensors
        out = g.new_zeros(*g.shape, 2)
        if WRONG:
            i = 1 - i
        return out.scatter(-1, i[..., None], g[..., None]).flatten(1)


class TopK(Function):
    @staticmethod
    def forward(ctx, x):
        v, i = x.topk(4, -1)
        ctx.save_for_backward(i)
        ctx.n = x.shape
        return v

    @staticmethod
    def backward(ctx, g):
        (i,) = ctx.saved_tensors
        return g.new_zeros(ctx.n).scatter(-1, i.sort(-1)[0] if WRONG else i, g)


class Clip(Function):  # identity with clipped gradient, by intention
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1e-3, 1e-3)


class Sphere(Function):  # projection on the sphere; wrong: the tangent's projection is left out
    @staticmethod
    def forward(ctx, x):
        n = x.norm(dim=-1, keepdim=True)
        ctx.save_for_backward(x / n, n)
        return x / n

    @staticmethod
    def backward(ctx, g):
        u, n = ctx.saved_tensors
        return (g if WRONG else g - u * (g * u).sum(-1, keepdim=True)) / n


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.m, self.small = nn.Linear(8, 8), nn.Linear(8, 4), nn.Parameter(torch.randn(8, 8)), nn.Linear(4, 4)

    def forward(self, x):
        h = self.first(x)
        if C == "dirty":
            h = Dirty.apply(h.tanh() + 0)
        elif C in ("setup", "compile"):
            h = Setup.apply(h, 3.0)
        elif C == "variadic":
            h = Sum.apply(h, h.sin(), h @ self.m)
        elif C == "nested":
            h = Outer.apply(h)
        elif C == "rare":
            h = Rare.apply(h * 2)
        elif C == "float":
            h = OnlyFloat.apply(h, self.m)
        elif C == "checkpoint":
            h = checkpoint(lambda t: Inner.apply(t) + t, h, use_reentrant=False)
        elif C == "huber":
            return Huber.apply(self.last(h) * 3, torch.zeros(h.shape[0], 4)) * 0.3
        elif C == "maxpool":
            return self.small(MaxPool.apply(h))
        elif C == "topk":
            return self.small(TopK.apply(h))
        elif C == "clip":
            h = Clip.apply(h)
        elif C == "sphere":
            h = Sphere.apply(h)
        elif C == "frozen":
            h = Inner.apply(h)
        elif C == "tiny":
            h = Inner.apply(h) * 1e-8
        return self.last(h)


torch.manual_seed(0)
model = Net()
if C == "frozen":
    model.first.requires_grad_(False)
    model.first.bias.requires_grad_(True)
run = torch.compile(model, backend="aot_eager") if C == "compile" else model
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(4):
    x = torch.randn(8, 8)
    out = run(x)
    loss = out if out.dim() == 0 else F.cross_entropy(out, torch.randint(0, 4, (8,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("end", loss.item())
