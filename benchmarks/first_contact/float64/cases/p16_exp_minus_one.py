"""Drift of a neural SDE by exp(r dt) - 1 with dt = 1e-7, divided by dt again. Truth: 1 + 1e-7 rounds to 1 + 1.2e-7.

Source: pytorch docs of expm1; pyro-ppl/pyro and gpytorch threads on exp(x) - 1 in flows
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
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, x):
        dt = 1e-7
        growth = torch.exp(self.b(self.a(x).tanh()) * dt) - 1  # FAULT
        return growth / dt



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(16, 6, generator=g)
    return (x.to(LOW),), torch.randn(16, 2, generator=g).to(LOW)


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
