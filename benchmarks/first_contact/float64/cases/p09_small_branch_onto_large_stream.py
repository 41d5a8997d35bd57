"""A residual stream of 300 in bfloat16 gets branches of 0.5, and the head reads the difference to the stream's start. Truth: spacing at 300 is 2.

Source: Wortsman et al. 2023, Small-scale proxies; pytorch/torchtune threads on a bf16 residual stream
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
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        start = x * 300
        h = start
        for block in self.blocks:
            h = h + block(x).tanh()  # FAULT
        return self.head(h - start)  # FAULT



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(16, 16, generator=g)
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
