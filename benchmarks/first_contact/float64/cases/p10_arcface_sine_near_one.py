"""ArcFace's margin on embeddings that nearly agree with their class: sqrt(1 - cos^2) in float32. Truth: 1 - cos^2 of 1e-7 with a spacing of 6e-8.

Source: ronghuaiyang/arcface-pytorch#91 and #32 (sine = sqrt(1 - cosine^2) near 1)
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
        self.weight = nn.Parameter(torch.randn(3, 16))
        self.delta = nn.Linear(8, 16)

    def forward(self, x):
        w = F.normalize(self.weight)
        e = F.normalize(w[0] + 2e-4 * self.delta(x))
        cosine = e @ w[:1].t()
        sine = torch.sqrt((1 - cosine.square()).clamp(1e-9, 1))  # FAULT
        return sine * 1e3



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(12, 8, generator=g)
    return (x.to(LOW),), torch.randn(12, 1, generator=g).to(LOW)


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
