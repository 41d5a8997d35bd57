"""A Llama-like block whose inv_freq is a buffer that .half() has cast; angles by einsum in float16. Truth: at 1857 the spacing is 1 radian (gpt-neox#1003's own numbers).

Source: huggingface/transformers#25681, #29496 (inv_freq in half after model.half())
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW = torch.float16


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim)))

    def forward(self, start, n):
        t = torch.arange(start, start + n).type_as(self.inv_freq)
        freqs = torch.einsum("i,j->ij", t, self.inv_freq)  # FAULT
        emb = torch.cat((freqs, freqs), -1)
        return emb.cos(), emb.sin()  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.out, self.rotary = nn.Linear(8, 8), nn.Linear(8, 2), Rotary(8)

    def forward(self, x):
        q = self.q(x) * 2
        cos, sin = self.rotary(6000, x.shape[1])
        half = torch.cat((-q[..., 4:], q[..., :4]), -1)
        return self.out(q * cos + half * sin)



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(4, 40, 8, generator=g)
    return (x.to(LOW),), torch.randn(4, 40, 2, generator=g).to(LOW)


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
