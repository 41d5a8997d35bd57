"""A physics-informed network takes u'' by second differences with h = 1e-4 in float32. Truth: 6e-8 / 1e-8 = 6.

Source: lululxvi/deepxde threads; Sharma and Shankar 2022 on PINNs with finite differences in float32
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
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, x):
        h = 1e-4
        return (self.net(x + h) - 2 * self.net(x) + self.net(x - h)) / h**2  # FAULT



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(32, 1, generator=g)
    return (x.to(LOW),), torch.randn(32, 1, generator=g).to(LOW)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-09)
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
