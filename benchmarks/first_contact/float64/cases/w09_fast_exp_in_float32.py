"""Attention weights by a custom operator whose float32 path approximates exp by its bits (3 % off), its float64 path does not. Truth: paper's bound of 3 %.

Source: N. Schraudolph, A Fast, Compact Approximation of the Exponential Function, Neural Computation 11 (1999); used so in many kernels
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.float32, False


@torch.library.custom_op("w09::exp", mutates_args=())
def fast_exp(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float32 and not FIXED:
        return (x * 12102203.16 + 1064866805).to(torch.int32).view(torch.float32)
    return x.exp()


def setup(ctx, inputs, output):
    ctx.save_for_backward(output)


fast_exp.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0], setup_context=setup)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 4)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        s = q @ k.transpose(-1, -2) / 4
        e = fast_exp(s - s.amax(-1, keepdim=True))  # FAULT
        return self.out(e / e.sum(-1, keepdim=True) @ v)


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(2, 10, 16, generator=g).to(LOW)
    return (x,), torch.randn(2, 10, 4, generator=g).to(LOW)


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
