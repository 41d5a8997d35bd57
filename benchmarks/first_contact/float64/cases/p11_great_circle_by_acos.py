"""Distances between neighbours on the globe by the law of cosines in float32. Truth: acos near 1 resolves 3e-4 rad (2 km), the points are 4 km apart, their differences matter.

Source: AndGem/OsmToRoadGraph#90, gboeing/osmnx#131, georust/geo#100 (law of cosines for near points in f32)
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
        self.move, self.head = nn.Linear(4, 2), nn.Linear(1, 1)

    def forward(self, x):
        lat = x[:, :1] * 0.1 + 0.8
        there = lat + 6e-4 * (1 + 0.3 * self.move(x)[:, :1].tanh())
        turn = 1e-4 * self.move(x)[:, 1:].tanh()
        c = lat.sin() * there.sin() + lat.cos() * there.cos() * turn.cos()  # FAULT
        return self.head(torch.acos(c) * 6371 - 3.8)  # FAULT



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(24, 4, generator=g)
    return (x.to(LOW),), torch.randn(24, 1, generator=g).to(LOW)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-06)
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
