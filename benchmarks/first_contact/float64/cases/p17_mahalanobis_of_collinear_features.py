"""A least-squares head by the normal equations of nearly collinear features. Truth: condition 1e7 squared is beyond float32.

Source: pytorch/pytorch#150165 (inverse of ill-conditioned matrices), statsmodels threads on normal equations
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
        self.a = nn.Linear(6, 1)
        self.t = nn.Parameter(torch.randn(40, 1))

    def forward(self, x):
        z = self.a(x)
        X = torch.cat([torch.ones_like(z), z, z + 1e-4 * x[:, :1]], -1)
        gram = X.t() @ X  # FAULT
        return torch.linalg.solve(gram, X.t() @ (self.t + 0.3 * x[:, :1]))  # FAULT



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(40, 6, generator=g)
    return (x.to(LOW),), torch.randn(3, 1, generator=g).to(LOW)


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
