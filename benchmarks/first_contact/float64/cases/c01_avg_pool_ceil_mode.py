"""A small CNN with AvgPool2d(3, 2, ceil_mode=True): Inductor divides the overhanging windows' gradient by 9. Forward is right.

Source: pytorch/pytorch#198119
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.pool = nn.Conv2d(1, 4, 3, padding=1), nn.AvgPool2d(3, 2, ceil_mode=True)
        self.head = nn.Linear(4 * 4 * 4, 2)

    def forward(self, x):
        return self.head(self.pool(self.a(x).tanh()).flatten(1))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(4, 1, 8, 8, generator=g)
    return (x,), torch.randn(4, 2, generator=g)


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
