"""Distances between points of a map (coordinates in metres, far from the origin) by x^2 + y^2 - 2xy. Truth: squares of 5e5 have a spacing of 16384.

Source: pytorch/pytorch#42479 (cdist by matrix multiplication), scikit-learn/scikit-learn#9354
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW = torch.float32


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(5, 2) * 40)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        c = self.centres + 512700
        d = (x * x).sum(-1, keepdim=True) + (c * c).sum(-1)[None] - 2 * x @ c.t()  # FAULT
        return self.head(torch.exp(-d.clamp(min=0) / 5000))



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(12, 2, generator=g) * 40 + 512700
    return (x.to(LOW),), torch.randn(12, 2, generator=g).to(LOW)


def loss_of(out, y):
    return (out - y).square().mean()


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
