"""Mean pooling over 4000 tokens in Triton (interpreter), accumulator of the input's dtype: in float16 a sum of numbers near 0.7 stalls at 2048. Truth: arithmetic (spacing 2 above 2048).

Source: meta-pytorch/torchrec#3730 (FP16 arithmetic before the accumulator)
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

LOW, FIXED = torch.float16, False


@triton.jit
def pool(x_ptr, y_ptr, tokens, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < width
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=x_ptr.dtype.element_ty)
    for t in range(tokens):
        total += tl.load(x_ptr + (row * tokens + t) * width + at, mask=mask, other=0.0)
    tl.store(y_ptr + row * width + at, total / tokens, mask=mask)


class Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.shape = x.shape
        y = x.new_empty(x.shape[0], x.shape[2])
        pool[(x.shape[0],)](x, y, x.shape[1], x.shape[2], BLOCK=16)
        return y

    @staticmethod
    def backward(ctx, g):
        return (g / ctx.shape[1])[:, None].expand(ctx.shape)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        h = F.softplus(self.a(x) / 2)
        h = h.mean(1) if FIXED else Pool.apply(h)  # FAULT
        return self.b(h)


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(1, 4000, 8, generator=g).to(LOW)
    return (x,), torch.randn(1, 2, generator=g).to(LOW)


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
