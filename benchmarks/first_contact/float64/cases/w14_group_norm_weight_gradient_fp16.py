"""A norm's own backward adds the weight's gradient row by row in a bfloat16 buffer when the model is float16. Truth: sum of the rows in float64.

Source: linkedin/Liger-Kernel#1253 (GroupNorm's fp16 weight gradients accumulate in bfloat16)
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.float16, False


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        h = F.layer_norm(x, x.shape[-1:])
        ctx.save_for_backward(h, weight)
        return h * weight + bias

    @staticmethod
    def backward(ctx, g):
        h, weight = ctx.saved_tensors
        if FIXED:
            gb = g.sum(0)
        else:
            total = torch.zeros(g.shape[-1], dtype=torch.bfloat16 if g.dtype == torch.float16 else g.dtype)
            for row in g:
                total += row.to(total.dtype)  # FAULT
            gb = total.to(g.dtype)
        gh = g * weight
        return gh, (g * h).sum(0), gb


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2)
        self.weight, self.bias = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))

    def forward(self, x):
        return self.b(Norm.apply(self.a(x), self.weight, self.bias))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    return (torch.randn(1500, 8, generator=g).to(LOW),), torch.ones(1500, 2).to(LOW) * 3


def loss_of(out, y):
    return (out.double() - y.double()).square().mean() * 64


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
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
