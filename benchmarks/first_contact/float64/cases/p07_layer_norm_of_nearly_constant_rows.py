"""A hand-written layer norm in bfloat16 on rows that are nearly constant (a bias of 60 in front of it). Truth: spacing at 60 is 0.25, the rows differ by 0.2.

Source: microsoft/DeepSpeed and NVIDIA/apex threads on LayerNorm in half; Xu et al. 2019
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
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 2)

    def forward(self, x):
        h = self.a(x) * 0.3 + 60  # FAULT
        h = h - h.mean(-1, keepdim=True)  # FAULT
        h = h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return self.b(h)



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(12, 16, generator=g)
    return (x.to(LOW),), torch.randn(12, 2, generator=g).to(LOW)


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
