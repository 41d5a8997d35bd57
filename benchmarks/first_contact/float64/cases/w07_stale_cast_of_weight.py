"""A linear layer keeps the bfloat16 copy of its weight by the weight's address, so steps after the first compute with the first weight. Truth: the output does not change as the weight does (lr is large so that it matters).

Source: X-GenGroup/Flow-Factory#186 and NVIDIA-NeMo/Automodel#3606 (cast cached by data_ptr outlives the optimizer's step)
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.float32, False
casts = {}


@torch.library.custom_op("w07::linear", mutates_args=())
def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    key = weight.data_ptr(), weight.dtype
    if key not in casts or FIXED:
        casts[key] = weight.detach().bfloat16() if weight.dtype == torch.float32 else weight.detach().clone()
    return (x.to(casts[key].dtype) @ casts[key].T).to(x.dtype)


def setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, g):
    x, weight = ctx.saved_tensors
    return g @ weight, g.T @ x


linear.register_autograd(backward, setup_context=setup)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.b = nn.Parameter(torch.randn(24, 16) * 0.2), nn.Linear(24, 2)

    def forward(self, x):
        return self.b(linear(x, self.weight).relu())  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(32, 16, generator=g).to(LOW)
    return (x,), torch.randn(32, 2, generator=g).to(LOW)


def loss_of(out, y):
    return (out.float() - y.float()).square().mean() if LOW != torch.float64 else (out - y).square().mean()


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
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
