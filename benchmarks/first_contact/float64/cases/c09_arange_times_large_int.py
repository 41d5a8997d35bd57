"""Timestamps as arange * 10**9 nanoseconds in int64: Inductor computes the index in 32 bits.

Source: pytorch/pytorch#175966
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(1, 8)
        self.b = nn.Linear(8, 1)

    def forward(self, x):
        t = torch.arange(0, x.shape[1]) * 1000000000  # FAULT
        seconds = t.to(x.dtype) * 1e-9
        return self.b(self.a((x * seconds[None])[..., None]).tanh())[..., 0]


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(4, 11, generator=g)
    return (x,), torch.randn(4, 11, generator=g)


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
