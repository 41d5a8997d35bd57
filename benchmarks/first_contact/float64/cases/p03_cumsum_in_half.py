"""Window sums as differences of a cumulative sum, in float16. Truth: at 2500 the spacing is 2, a window's sum is about 2.

Source: huggingface/transformers#25431 (Informer's cumsum in fp16), state-spaces/mamba#923
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
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = F.softplus(self.a(x))
        c = h.cumsum(1)  # FAULT
        w = c[:, 4:] - c[:, :-4]  # FAULT
        return self.b(w / 4)



def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(2, 4000, 4, generator=g)
    return (x.to(LOW),), torch.randn(2, 3996, 2, generator=g).to(LOW)


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
