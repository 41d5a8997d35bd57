"""Packed sequences: the backward writes rows up to the last sequence's end into a buffer of torch.empty, the rest is whatever lay there. Truth: rows 24 to 31 of the gradient must be zero.

Source: fla-org/flash-linear-attention#892 (gradient buffers by empty_like, trailing rows never written)
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.float32, False


class PackedScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain, end):
        ctx.save_for_backward(x, gain)
        ctx.end = end
        y = torch.zeros_like(x)
        y[:end] = x[:end] * gain
        return y

    @staticmethod
    def backward(ctx, g):
        x, gain = ctx.saved_tensors
        spent = [torch.full_like(x, 7.5) for _ in range(8)]  # what other operations have freed
        del spent
        gx = torch.zeros_like(x) if FIXED else torch.empty_like(x)  # FAULT
        gx[: ctx.end] = g[: ctx.end] * gain  # FAULT
        return gx, (g * x)[: ctx.end].sum(0), None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 64), nn.Linear(64, 2)
        self.gain = nn.Parameter(torch.ones(64))

    def forward(self, x):
        return self.b(PackedScale.apply(self.a(x), self.gain, 24))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(32, 16, generator=g).to(LOW)
    return (x,), torch.randn(32, 2, generator=g).to(LOW)


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
