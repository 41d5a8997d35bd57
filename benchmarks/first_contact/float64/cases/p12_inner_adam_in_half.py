"""An unrolled inner optimizer (meta-learning) keeps its second moment in bfloat16; v * 0.999 + 0.001 * g^2 hardly moves. Truth: 0.999 is 1 in bfloat16.

Source: lucidrains/adam-atan2 and pytorch/torchdistx#52 threads (second moment in bf16: 0.001 g^2 onto v)
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
        self.w, self.lr = nn.Parameter(torch.randn(8)), nn.Parameter(torch.tensor(0.1))
        self.v = nn.Parameter(torch.full((8,), 4.0))

    def forward(self, x):
        w, v = self.w, self.v
        for row in x:
            g = (w * row).sum() * row * 0.01
            v = v * 0.999 + 0.001 * g.square()  # FAULT
            w = w - self.lr * g / (v.sqrt() + 1e-8)
        return v



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(600, 8, generator=g)
    return (x.to(LOW),), torch.randn(8, generator=g).to(LOW)


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
