"""A linear recurrence with slow decay keeps its state in bfloat16; increments are below half a spacing. Truth: bf16 spacing at 1..2 is 2^-7.

Source: vllm-project/vllm#13466 (SSM state in 16 bits), state-spaces/mamba#923
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
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        u = F.softplus(self.a(x)) * 0.001
        h = torch.full_like(u[:, 0], 2.0)
        for t in range(u.shape[1]):
            h = h * 0.9985 + u[:, t]  # FAULT
        return self.b(h)



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(4, 800, 4, generator=g)
    return (x.to(LOW),), torch.randn(4, 2, generator=g).to(LOW)


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
