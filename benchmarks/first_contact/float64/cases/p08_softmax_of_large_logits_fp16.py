"""Attention in float16 without a scale: logits near 9,000 have a spacing of 8 before the softmax. Truth: e^2.

Source: huggingface/transformers#17433-like threads on attention logits in fp16 (no scaling by 1/sqrt(d)); CogView, Ding et al. 2021
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW = torch.float16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qk, self.v, self.out = nn.Linear(16, 128), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        q, k = q + 12, k * 0.1 + 12
        s = q @ k.transpose(-1, -2)  # FAULT
        return self.out(s.softmax(-1) @ self.v(x))



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(3, 12, 16, generator=g)
    return (x.to(LOW),), torch.randn(3, 12, 2, generator=g).to(LOW)


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
