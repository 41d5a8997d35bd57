"""Measurements in SI units (1e-23) are standardized: Inductor's std accumulates in float32, squares underflow, std is 0; eager's accumulates in float64.

Source: pytorch/pytorch#197089
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Linear(64, 16), nn.Linear(16, 2)

    def forward(self, x):
        h = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-24)  # FAULT
        return self.head(self.a(h).tanh())


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(16, 64, generator=g) * 1e-23
    return (x,), torch.randn(16, 2, generator=g)


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
