"""double.py CASE: for --check float64: w-... a wrong result of an operation, l-... precision lost by rounding, h-... healthy."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

CASE = sys.argv[1]


@torch.library.custom_op("stranger::rowsum", mutates_args=())
def rowsum(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float64:
        return x.sum(-1)
    acc = torch.zeros(x.shape[:-1], dtype=torch.float16)
    for i in range(x.shape[-1]):
        acc = acc + x[..., i].half()
    return acc.to(x.dtype)


rowsum.register_autograd(lambda ctx, g: g[..., None].expand(ctx.s), setup_context=lambda ctx, inputs, output: setattr(ctx, "s", inputs[0].shape))


@torch.library.custom_op("stranger::fastexp", mutates_args=())
def fastexp(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float64:
        return x.exp()
    return (1 + x / 256).pow(256)


fastexp.register_autograd(lambda ctx, g: g * ctx.y, setup_context=lambda ctx, inputs, output: setattr(ctx, "y", output))


@torch.library.custom_op("stranger::matmul", mutates_args=())
def matmul(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w.t()
    if x.dtype != torch.float64:
        y[:, -1] = x[:, :-1] @ w[-1, :-1]  # the last column's tail is dropped
    return y


matmul.register_autograd(lambda ctx, g: (g @ ctx.w, g.t() @ ctx.x), setup_context=lambda ctx, inputs, output: (setattr(ctx, "x", inputs[0]), setattr(ctx, "w", inputs[1]), None)[2])


@torch.library.custom_op("stranger::scale_", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * (2 if x.dtype == torch.float64 else 2.01)


scale.register_autograd(lambda ctx, g: g * 2, setup_context=lambda ctx, inputs, output: None)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.mid, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.att = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        c = CASE[2:]
        h = self.first(x)
        if c == "rowsum":
            h = h * torch.ops.stranger.rowsum(h.abs() * 30)[:, None]  #@ rowsum
        elif c == "fastexp":
            h = torch.ops.stranger.fastexp(h * 4)  #@ fastexp
        elif c == "matmul":
            h = torch.ops.stranger.matmul(h, self.mid.weight)  #@ matmul
        elif c == "scale":
            h = torch.ops.stranger.scale_(h)  #@ scale
        elif c == "variance":
            h = h + 3000
            v = (h * h).mean(-1, keepdim=True) - h.mean(-1, keepdim=True) ** 2  #@ variance
            h = (h - h.mean(-1, keepdim=True)) * (v.abs() + 1e-5).rsqrt()
        elif c == "softplus":
            h = torch.log(1 + torch.exp(-20 - h.abs())) * 1e8  #@ softplus
        elif c == "angle":
            t = (h.detach() * 0 + torch.arange(16) * 300.7).bfloat16() + h.bfloat16()  #@ angle
            h = torch.sin(t).float()
        elif c == "expm1":
            h = (torch.exp(h * 1e-6) - 1) * 1e6  #@ expm1
        elif c == "cumsum":
            big = torch.cat([torch.full((h.shape[0], 1), 1e7), h, torch.full((h.shape[0], 1), -1e7)], -1)
            h = big.cumsum(-1)[:, -1:] + 0 * h  #@ cumsum
        elif c == "cosine":
            a = F.normalize(h)
            h = (1 - (a * F.normalize(h + 1e-4 * self.mid(h))).sum(-1, keepdim=True)) * 1e7 + 0 * h  #@ cosine
        elif c == "attention":
            h = self.att(h[:, None], h[:, None], h[:, None])[0][:, 0]
        elif c == "residual":
            h = h + F.gelu(self.mid(h))
        elif c == "softmax":
            h = (h * 5).softmax(-1) + h.logsumexp(-1, keepdim=True)
        elif c == "norm":
            h = F.layer_norm(self.mid(h), (16,))
        elif c == "welford":
            h = h + 3000
            h = F.layer_norm(h - h.mean(-1, keepdim=True), (16,))
        elif c == "round":
            h = h + (h.round() - h).detach()
        elif c == "sumcancel":
            h = h - h.mean(0) + 1e-3 * self.mid(h)
        return self.last(h)


torch.manual_seed(0)
model = Net()
if CASE == "h-bfloat":
    model = model.bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(4):
    x = torch.randn(16, 8)
    if CASE == "h-bfloat":
        x = x.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=CASE == "h-autocast"):
        out = model(x)
    loss = out.float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("end", loss.item())
