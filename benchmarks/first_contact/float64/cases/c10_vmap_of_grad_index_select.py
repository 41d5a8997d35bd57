"""Per-sample input gradients (vmap of grad) as a regularizer: compiled they are batch size times too large.

Source: pytorch/pytorch#188084
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

from torch.func import grad_and_value, vmap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -1.0]))
        self.a = nn.Linear(4, 4)
        self.register_buffer("index", torch.tensor([0, 2]))

    def forward(self, x):
        def f(row):
            s = torch.stack([row[..., k] for k in range(4)], -1)
            return (torch.index_select(s, -1, self.index) * self.w.detach()).sum(-1)  # FAULT

        g, v = vmap(grad_and_value(f))(x)
        return self.a(x) + g


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(4, 4, generator=g)
    return (x,), torch.randn(4, 4, generator=g)


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
