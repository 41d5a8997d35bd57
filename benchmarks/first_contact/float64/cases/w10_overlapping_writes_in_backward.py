"""Backward of a gather adds by dx[index] += g: of equal indices only one counts, in every dtype. Truth: sums of duplicates by hand.

Source: jmschrei/cherimoya#25 (load-add-store of overlapping positions loses contributions)
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.float32, False


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = table.shape[0]
        return table[index]

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        dx = g.new_zeros(ctx.rows, g.shape[-1])
        if FIXED:
            dx.index_add_(0, index.flatten(), g.flatten(0, -2))
        else:
            dx[index] += g  # FAULT
        return dx, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(6, 8)), nn.Linear(8, 2)

    def forward(self, index):
        return self.head(Gather.apply(self.table, index).mean(1))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    return (torch.randint(0, 6, (16, 5), generator=g),), torch.randn(16, 2, generator=g).to(LOW)


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
