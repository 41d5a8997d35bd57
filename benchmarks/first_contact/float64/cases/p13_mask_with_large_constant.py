"""Scores of padded queries are all masked by adding -1e9, then the mask is taken off again for an auxiliary loss. Truth: spacing at 1e9 is 64.

Source: pytorch/pytorch#41508-like threads on -1e9 masks; huggingface/transformers#14859 (masked rows)
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
        self.qk, self.v, self.out = nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        s = q @ k.transpose(-1, -2) * 3 + torch.full((x.shape[1],) * 2, -1e9)  # FAULT
        return self.out(s.softmax(-1) @ self.v(x))



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(2, 10, 8, generator=g)
    return (x.to(LOW),), torch.randn(2, 10, 2, generator=g).to(LOW)


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
