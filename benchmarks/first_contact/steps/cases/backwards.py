"""backwards.py CASE: a network with one Function of its own; w-... has a wrong backward, r-... a right one."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

CASE = sys.argv[1]
WRONG = CASE.startswith("w")


class GeluTanh(Function):  # the derivative of the exact GELU for the tanh form, times the cube's term left out
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        t = torch.tanh(0.79788456 * (x + 0.044715 * x**3))
        inner = 0.79788456 * (1 + (0 if WRONG else 3) * 0.044715 * x**2)
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner)


class Swish(Function):  # memory-efficient swish; wrong: x is left out
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return g * s * (1 + (1 - s) * (1 if WRONG else x))


class RMSNorm(Function):  # wrong: the term by the norm is not subtracted
    @staticmethod
    def forward(ctx, x, w):
        r = (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
        ctx.save_for_backward(x, w, r)
        return x * r * w

    @staticmethod
    def backward(ctx, g):
        x, w, r = ctx.saved_tensors
        gx = g * w * r
        if not WRONG:
            gx = gx - x * r**3 * (g * w * x).mean(-1, keepdim=True)
        return gx, (g * x * r).sum(0)


class LayerNormB(Function):  # wrong: bias gradient is a mean over the batch
    @staticmethod
    def forward(ctx, x, w, b):
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        n = (x - mean) * (var + 1e-5).rsqrt()
        ctx.save_for_backward(n, w, (var + 1e-5).rsqrt())
        return n * w + b

    @staticmethod
    def backward(ctx, g):
        n, w, r = ctx.saved_tensors
        gn = g * w
        gx = r * (gn - gn.mean(-1, keepdim=True) - n * (gn * n).mean(-1, keepdim=True))
        return gx, (g * n).sum(0), g.mean(0) if WRONG else g.sum(0)


class Linear2(Function):  # wrong: weight's gradient is not transposed (square weight)
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, x.t() @ g if WRONG else g.t() @ x


class LinearX(Function):  # wrong: x's gradient by w.t() (square)
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ (w.t() if WRONG else w), g.t() @ x


class ISRLU(Function):  # pytorch#4355: not multiplied by the gradient of the result
    @staticmethod
    def forward(ctx, x):
        n = torch.rsqrt(1 + torch.clamp_max(x, 0) ** 2)
        ctx.save_for_backward(n)
        return x * n

    @staticmethod
    def backward(ctx, g):
        (n,) = ctx.saved_tensors
        return n**3 if WRONG else g * n**3


class SoftmaxF(Function):  # wrong: diagonal alone
    @staticmethod
    def forward(ctx, x):
        p = x.softmax(-1)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return g * p * (1 - p) if WRONG else p * (g - (g * p).sum(-1, keepdim=True))


class FusedCE(Function):  # wrong: gradient of the mean is not divided by the number of rows
    @staticmethod
    def forward(ctx, x, y):
        p = x.softmax(-1)
        ctx.save_for_backward(p, y)
        return F.cross_entropy(x, y)

    @staticmethod
    def backward(ctx, g):
        p, y = ctx.saved_tensors
        d = p - F.one_hot(y, p.shape[-1])
        return g * (d if WRONG else d / p.shape[0]), None


class FusedCEg(Function):  # wrong: gradient computed in forward, grad_output ignored (as a fused loss may do)
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward((x.softmax(-1) - F.one_hot(y, x.shape[-1])) / x.shape[0])
        return F.cross_entropy(x, y)

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        return d if WRONG else g * d, None


class Focal(Function):  # wrong sign
    @staticmethod
    def forward(ctx, x, y):
        p = x.sigmoid()
        ctx.save_for_backward(p, y)
        return F.binary_cross_entropy(p, y, reduction="none")

    @staticmethod
    def backward(ctx, g):
        p, y = ctx.saved_tensors
        return g * (y - p if WRONG else p - y), None


class NormDiv(Function):  # wrong: None for an operand that needs one
    @staticmethod
    def forward(ctx, x, s):
        ctx.save_for_backward(x, s)
        return x / s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g / s, None if WRONG else (-g * x / s**2).sum(0)


class Contig(Function):  # wrong where the gradient is not contiguous: read as if it were
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        if WRONG:
            return 3 * torch.as_strided(g, g.shape, (g.shape[1], 1), g.storage_offset()) if not g.is_contiguous() and g.untyped_storage().nbytes() >= 4 * g.numel() else 3 * g
        return g * 3


class Recompute(Function):  # own checkpoint of a fixed block: wrong recompute (another activation)
    @staticmethod
    def forward(ctx, x, w1, w2):
        ctx.save_for_backward(x, w1, w2)
        return torch.tanh(x @ w1) @ w2

    @staticmethod
    def backward(ctx, g):
        x, w1, w2 = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            h = x @ w1
            h = torch.sigmoid(h) if WRONG else torch.tanh(h)
            y = h @ w2
        return torch.autograd.grad(y, (x, w1, w2), g)


class RecomputeDrop(Function):  # wrong recompute: dropout drawn anew in backward; right: the mask is kept
    @staticmethod
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.3).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask / 0.7

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        if WRONG:
            mask = (torch.rand_like(g) > 0.3).to(g.dtype)
        return g * mask / 0.7


class Rope(Function):  # wrong: rotated the same way in backward
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        if not WRONG:
            sin = -sin
        a, b = g.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1), None, None


class SwiGLU(Function):  # wrong: gate and up exchanged
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        s = a.sigmoid()
        ga, gb = g * b * s * (1 + a * (1 - s)), g * F.silu(a)
        return (gb, ga) if WRONG else (ga, gb)


class Scatter(Function):  # embedding by hand: wrong: repeated ids overwrite instead of adding up
    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.n = table.shape
        return table[ids]

    @staticmethod
    def backward(ctx, g):
        (ids,) = ctx.saved_tensors
        out = g.new_zeros(ctx.n)
        if WRONG:
            out[ids] = g
        else:
            out.index_put_((ids,), g, accumulate=True)
        return out, None


class Attn(Function):  # wrong: scale forgotten in q's gradient
    @staticmethod
    def forward(ctx, q, k, v):
        p = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        gp = g @ v.transpose(-1, -2)
        gs = p * (gp - (gp * p).sum(-1, keepdim=True))
        s = q.shape[-1] ** 0.5
        return gs @ k / (1 if WRONG else s), gs.transpose(-1, -2) @ q / s, p.transpose(-1, -2) @ g


class Log1mexp(Function):  # once_differentiable; wrong by 2 %
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.log1p(torch.exp(x))

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.sigmoid() * (1.02 if WRONG else 1)


class Cumsum(Function):  # wrong: cumsum in backward, not reversed
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(-1)

    @staticmethod
    def backward(ctx, g):
        return g.cumsum(-1) if WRONG else g.flip(-1).cumsum(-1).flip(-1)


class TwoOut(Function):  # two results; wrong: the second's gradient is dropped
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return g * x.cos() - (0 if WRONG else h * x.sin())


class BroadMul(Function):  # wrong: a broadcast operand's gradient is summed over too little, then expanded
    @staticmethod
    def forward(ctx, x, s):
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g * s, (g * x)[:4].sum(0, keepdim=True) if WRONG else (g * x).sum(0, keepdim=True)


class Half(Function):  # a bfloat16 path alone is wrong
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        scale = 0.5 if WRONG and g.dtype == torch.bfloat16 else 1
        return g @ w * scale, g.t() @ x


class STE(Function):  # right by intention: straight-through rounding
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Reverse(Function):  # right by intention: gradient reversal
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class Relu2(Function):  # a kink
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0)


@torch.library.custom_op("stranger::scaled_tanh", mutates_args=())
def scaled_tanh(x: torch.Tensor, a: float) -> torch.Tensor:
    return torch.tanh(a * x)


@scaled_tanh.register_fake
def _(x, a):
    return torch.empty_like(x)


scaled_tanh.register_autograd(lambda ctx, g: (g * (1 - ctx.y**2) * (1 if WRONG else ctx.a), None), setup_context=lambda ctx, inputs, output: (setattr(ctx, "y", output), setattr(ctx, "a", inputs[1]), None)[2])


@torch.library.custom_op("stranger::outer_gate", mutates_args=())
def outer_gate(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(w)


def outer_gate_backward(ctx, g):
    x, w = ctx.saved_tensors
    s = w.sigmoid()
    return g * s, (g * x * s * (1 if WRONG else 1 - s)).sum(0)


outer_gate.register_autograd(outer_gate_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.w, self.b, self.m, self.n = nn.Parameter(torch.rand(8) + 0.5), nn.Parameter(torch.rand(8)), nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8, 8))
        self.table = nn.Parameter(torch.randn(6, 8))

    def forward(self, x, y=None):
        h, c = self.first(x), CASE[2:]
        if c in ("gelu", "swish", "isrlu", "softmax", "softplus", "cumsum", "relu", "contig", "drop", "ste", "reverse"):
            f = {"gelu": GeluTanh, "swish": Swish, "isrlu": ISRLU, "softmax": SoftmaxF, "softplus": Log1mexp, "cumsum": Cumsum, "relu": Relu2, "contig": Contig, "drop": RecomputeDrop, "ste": STE, "reverse": Reverse}[c]
            h = f.apply(h)
            if c == "contig":
                return (h.t() * self.w[:, None]).sum(0, keepdim=True).t().expand(-1, 4) + (h.t().contiguous().t() @ self.m)[:, :4] + h.t().cumsum(1).t()[:, :4]
        elif c == "rms":
            h = RMSNorm.apply(h, self.w)
        elif c == "layernorm":
            h = LayerNormB.apply(h, self.w, self.b)
        elif c == "linear":
            h = Linear2.apply(h, self.m)
        elif c == "linearx":
            h = LinearX.apply(h, self.m)
        elif c == "half":
            h = Half.apply(h.bfloat16(), self.m.bfloat16()).float()
        elif c == "div":
            h = NormDiv.apply(h, self.w)
        elif c == "recompute":
            h = Recompute.apply(h, self.m, self.n)
        elif c == "rope":
            t = torch.arange(h.shape[0])[:, None] * torch.tensor([1.0, 0.5, 0.2, 0.1])
            h = Rope.apply(h, t.cos(), t.sin())
        elif c == "swiglu":
            h = SwiGLU.apply(h, h @ self.m)
        elif c == "scatter":
            h = h + Scatter.apply(self.table, torch.arange(h.shape[0]) % 3)
        elif c == "attention":
            h = Attn.apply(h @ self.m, h @ self.n, h)
        elif c == "two":
            a, b = TwoOut.apply(h)
            h = a + 2 * b
        elif c == "broad":
            h = BroadMul.apply(h, self.w[None])
        elif c == "op":
            h = torch.ops.stranger.scaled_tanh(h, 0.3)
        elif c == "op2":
            h = torch.ops.stranger.outer_gate(h, self.w)
        out = self.last(h)
        if c == "ce":
            return 0.5 * FusedCE.apply(out, y)
        if c == "ceg":
            return 0.5 * FusedCEg.apply(out, y)
        if c == "focal":
            return Focal.apply(out, F.one_hot(y, 4).to(out.dtype)).mean()
        return out


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inside = CASE[2:] in ("ce", "ceg", "focal")
for step in range(4):
    x, y = torch.randn(8, 8), torch.randint(0, 4, (8,))
    if CASE[2:] in ("script-ce", "script-swish"):  # the Function runs in the script, outside of the model
        out = model(x)
        loss = 0.5 * FusedCE.apply(out, y) if CASE.endswith("ce") else F.cross_entropy(Swish.apply(out), y)
    else:
        loss = model(x, y) if inside else F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("end", loss.item())
