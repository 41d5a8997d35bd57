"""Byte-level model in bfloat16 with few symbols: torch.nn.Embedding's gradient on a CPU adds thousands of rows in bfloat16 and stalls. Truth: sum of the rows in float64.

Source: apache/mxnet#17703, tenstorrent/tt-metal#53386 (gradient of repeated indices accumulates in the weight's dtype); torch's own CPU kernel does so
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
        self.table, self.head = nn.Embedding(3, 16), nn.Linear(16, 2)

    def forward(self, index):
        return self.head(self.table(index)).mean(1)  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    return (torch.randint(0, 3, (4, 6000), generator=g),), torch.randn(4, 2, generator=g).to(LOW) + 3


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
