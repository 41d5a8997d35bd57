"""A lowering of one's own for log1p is log(x) + x (a typing error).

Source: pytorch docs, torch._inductor.lowering.register_lowering as used by extensions; invented fault
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

from torch._inductor import lowering as L




@torch.library.custom_op("set_ops::soft", mutates_args=())
def soft(x: torch.Tensor) -> torch.Tensor:
    return torch.log1p(x.exp())


@soft.register_fake
def _(x):
    return torch.empty_like(x)


soft.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].sigmoid(), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@L.register_lowering(torch.ops.set_ops.soft.default, type_promotion_kind=None)
def lowered(x):
    e = L.lowerings[torch.ops.aten.exp](x)
    return L.lowerings[torch.ops.aten.log](e)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.b(soft(self.a(x)))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(8, 8, generator=g)
    return (x,), torch.randn(8, 2, generator=g)


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
