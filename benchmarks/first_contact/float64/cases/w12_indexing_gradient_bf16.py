"""Relative position biases by table[index] in bfloat16: the gradient adds thousands of entries per row in bfloat16. Truth: sum in float64.

Source: flagos-ai/FlagGems#4295 (gather_backward accumulates in low precision); torch's own index_put(accumulate=True) does so on a CPU
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.bfloat16, False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qk, self.v, self.out = nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(8, 2)
        self.bias = nn.Parameter(torch.zeros(5))

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        at = torch.arange(x.shape[1])
        distance = (at[:, None] - at[None]).clamp(-2, 2) + 2
        s = q @ k.transpose(-1, -2) + self.bias[distance]  # FAULT
        return self.out(s.sigmoid() @ self.v(x) / x.shape[1])


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    return (torch.randn(1, 128, 8, generator=g).to(LOW),), torch.randn(1, 128, 2, generator=g).to(LOW) + 3


def loss_of(out, y):
    return (out.double() - y.double()).square().mean()


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
