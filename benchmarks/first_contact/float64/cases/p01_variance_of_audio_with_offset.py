"""A recorder's samples with a large constant offset are standardized by E[x^2] - E[x]^2. Truth: 1.6e9 has a spacing of 128 in float32.

Source: pytorch/pytorch#197089 (statistics of N(1e5, 1)), Chan, Golub, LeVeque 1983
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
        self.conv, self.head = nn.Conv1d(1, 4, 5), nn.Linear(4, 2)

    def forward(self, x):
        m = x.mean(-1, keepdim=True)
        v = (x * x).mean(-1, keepdim=True) - m * m  # FAULT
        x = (x - m) / (v.abs() + 1e-3).sqrt()
        return self.head(self.conv(x[:, None]).relu().mean(-1))



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(6, 400, generator=g) + 40000
    return (x.to(LOW),), torch.randn(6, 2, generator=g).to(LOW)


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
