"""A loss over 256 chunks is summed within the model in bfloat16, so backward adds 256 gradients of one weight in bfloat16. Truth: sums stall at 256 times an addend.

Source: pytorch/torchtitan and Megatron-LM (--accumulate-allreduce-grads-in-fp32 exists for it)
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
        self.w, self.bias = nn.Parameter(torch.randn(8, 2) * 0.1), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        out = []
        for chunk in x.split(1):
            out.append(chunk @ self.w + self.bias)  # FAULT
        return torch.cat(out)


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    return ((torch.randn(1500, 8, generator=g) * 0.1 + 1).to(LOW),), torch.full((1500, 2), 4.0).to(LOW)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
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
