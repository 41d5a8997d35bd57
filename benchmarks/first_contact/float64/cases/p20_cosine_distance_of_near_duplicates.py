"""Contrastive loss on two views that nearly agree: 1 - cos in bfloat16. Truth: spacing below 1 is 2^-8, the distance is 1e-3.

Source: facebookresearch/moco and sentence-transformers threads on 1 - cos in half
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW = torch.bfloat16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 32)

    def forward(self, x):
        a = self.a(x)
        b = self.a(x + 0.04 * x.flip(0))
        c = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
        return (1 - c) * 100  # FAULT



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(16, 16, generator=g)
    return (x.to(LOW),), torch.randn(16, generator=g).to(LOW)


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
