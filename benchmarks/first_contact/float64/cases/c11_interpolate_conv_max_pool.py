"""Upsampling, convolution, max pooling and a mask: compiled gradients are wrong.

Source: pytorch/pytorch#185509 (the docs' own example; another model here)
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.scale = nn.Conv2d(3, 8, 3, padding=1), nn.Parameter(torch.ones(3, 8, 8))

    def forward(self, x):
        y = F.interpolate(x * self.scale, scale_factor=(1.5, 1.25), mode="bilinear", align_corners=False)[:, :, 1:7, 1:8]
        c = self.c(y)  # FAULT
        p = F.max_pool2d(c, 3, 1, 1)  # FAULT
        return torch.where((c > p.mean((2, 3), keepdim=True)).detach(), c, p)  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(1, 3, 8, 8, generator=g)
    return (x,), torch.randn(1, 8, 6, 7, generator=g)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net()


def compiled(model):
    return torch.compile(model)


def main():
    torch.manual_seed(0)
    model = compiled(build())
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
