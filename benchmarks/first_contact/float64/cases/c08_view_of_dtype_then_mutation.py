"""Bits of a counter buffer read as int32, the buffer then written: the compiled read comes after the write.

Source: pytorch/pytorch#198101
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("counter", torch.arange(-12, 12).reshape(4, 6))
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        low = self.counter.view(torch.int32) * 2
        low.sub_(-4)
        self.counter[:, 2:5] = 2  # FAULT
        return self.a(x) * (1 + low.view(torch.int64).remainder(7))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(4, 6, generator=g)
    return (x,), torch.randn(4, 6, generator=g)


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
