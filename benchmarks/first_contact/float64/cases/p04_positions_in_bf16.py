"""Rotary embedding: positions and inverse frequencies as bfloat16 before sin and cos. Truth: position 1001 is 1000 in bfloat16, one radian off.

Source: EleutherAI/gpt-neox#1003, huggingface/candle#3520 (positions above 256 in bfloat16)
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
        self.qk, self.v, self.out = nn.Linear(16, 32), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x):
        t = torch.arange(900, 900 + x.shape[1]).to(x.dtype)
        f = (100 ** -(torch.arange(0, 8) / 8)).to(x.dtype)
        a = t[:, None] * f[None]  # FAULT
        cos, sin = a.cos(), a.sin()  # FAULT
        turn = lambda u: torch.cat([u[..., :8] * cos - u[..., 8:] * sin, u[..., 8:] * cos + u[..., :8] * sin], -1)
        q, k = self.qk(x).chunk(2, -1)
        s = (turn(q * 3) @ turn(k * 3).transpose(-1, -2)).softmax(-1)
        return self.out(s @ self.v(x))



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(2, 24, 16, generator=g)
    return (x.to(LOW),), torch.randn(2, 24, 2, generator=g).to(LOW)


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
