"""An in-place foreach update of a buffer by its own flip.

Source: pytorch/pytorch#198033
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", torch.linspace(-1, 1, 64).reshape(8, 8).exp())
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        k = self.kernel
        torch._foreach_add_([k], [k.flip(0)])  # FAULT
        return self.a(x @ (k * 1))


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(6, 8, generator=g)
    return (x,), torch.randn(6, 8, generator=g)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net()


def compiled(model):
    return torch.compile(model)


def main():
    torch.manual_seed(0)
    model = compiled(build())
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
