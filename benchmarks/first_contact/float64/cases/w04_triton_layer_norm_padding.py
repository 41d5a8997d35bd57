"""Layer norm in Triton (interpreter): padded lanes are zero, less the mean they are -mean and enter the variance, in every dtype. Truth: 24 columns in a block of 32, mean 3: variance has 8/24*9 too much.

Source: triton-lang/triton#9838 (variance over the padded lanes)
"""
import hashlib
import math
import os
os.environ["TRITON_INTERPRET"] = "1"
import triton
import triton.language as tl
import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.float32, False


@triton.jit
def norm(x_ptr, y_ptr, r_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    c = x - tl.sum(x, axis=0) / n
    var = tl.sum(c * c, axis=0) / n
    r = 1 / tl.sqrt(var + 1e-5)
    tl.store(y_ptr + row * n + at, c * r, mask=at < n)
    tl.store(r_ptr + row, r)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y, r = torch.empty_like(x), x.new_empty(x.shape[0])
        norm[(x.shape[0],)](x, y, r, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    def backward(ctx, g):
        y, r = ctx.saved_tensors
        return (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)) * r[:, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 24), nn.Linear(24, 2)

    def forward(self, x):
        h = self.a(x) + 3
        h = F.layer_norm(h, (24,)) if FIXED else Norm.apply(h)  # FAULT
        return self.b(h)


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(6, 12, generator=g).to(LOW)
    return (x,), torch.randn(6, 2, generator=g).to(LOW)


def loss_of(out, y):
    return (out.float() - y.float()).square().mean() if LOW != torch.float64 else (out - y).square().mean()


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = batch(step)
        loss = loss_of(model(*x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6g}", flush=True)
    digest = hashlib.sha256(b"".join(p.detach().float().numpy().tobytes() for p in model.state_dict().values()))
    print("weights", digest.hexdigest()[:16])


if __name__ == "__main__":
    main()
