"""A survival model gives log(1 - p) of a sigmoid by hand for hazard logits near 16.6. Truth: 1 - p is 6e-8 and has a spacing of 6e-8.

Source: pytorch docs of BCEWithLogitsLoss (why it exists), tensorflow/tensorflow#1624-like threads on log(1 - sigmoid)
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
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        p = torch.sigmoid(self.b(self.a(x).tanh()) + 16.6)
        q = 1 - p  # FAULT
        return torch.log(q + 1e-12)  # FAULT



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(16, 8, generator=g)
    return (x.to(LOW),), torch.randn(16, 1, generator=g).to(LOW)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
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
