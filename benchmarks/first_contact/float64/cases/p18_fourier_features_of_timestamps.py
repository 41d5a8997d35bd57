"""Day-of-time features from unix seconds: origin + offset in float32, then sin. Truth: spacing at 1.7e9 is 128 s, the feature's period is 600 s.

Source: unit8co/darts and pytorch-forecasting threads on datetime encodings; Kazemi et al. 2019 Time2Vec
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
        self.head = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        self.origin = 1.7e9

    def forward(self, seconds):
        t = seconds + self.origin  # FAULT
        a = t * (2 * math.pi / 600)  # FAULT
        return self.head(torch.cat([a.sin(), a.cos()], -1) * 2)  # FAULT



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.rand(32, 1, generator=g) * 3000
    return (x.to(LOW),), torch.randn(32, 1, generator=g).to(LOW)


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
