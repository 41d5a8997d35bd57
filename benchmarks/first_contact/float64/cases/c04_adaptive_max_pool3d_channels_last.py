"""3-D CNN in channels_last_3d with AdaptiveMaxPool3d: compiled backward scatters to wrong places.

Source: pytorch/pytorch#197888
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Conv3d(2, 4, 1), nn.Linear(4 * 30, 2)
        self.scale = nn.Parameter(torch.ones(4, 6, 10))

    def forward(self, x):
        h = (x * self.scale).contiguous(memory_format=torch.channels_last_3d)
        h = F.adaptive_max_pool3d(h, (2, 3, 5))  # FAULT
        return self.head(h.flatten(1))


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(3, 4, 4, 6, 10, generator=g)
    return (x,), torch.randn(3, 2, generator=g)


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
