"""A decomposition table with gelu_backward of the tanh form for every gelu, without its second term.

Source: pytorch/pytorch#152309 (a decomposition gives wrong gradients); another operator here
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

from torch._dynamo.backends.common import aot_autograd
from functorch.compile import make_boxed_func


def gelu_backward(g, x, approximate="none"):
    return g * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


table = {torch.ops.aten.gelu_backward.default: gelu_backward}
plain = lambda graph, example: make_boxed_func(graph.forward)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(8, 8, generator=g)
    return (x,), torch.randn(8, 2, generator=g)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net()


def compiled(model):
    return torch.compile(model, backend=aot_autograd(fw_compiler=plain, decompositions=table))


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
