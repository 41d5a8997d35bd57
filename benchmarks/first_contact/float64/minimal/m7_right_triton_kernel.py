"""Healthy: a right Triton kernel under the interpreter (it makes tensors by set_). Said: without aten.set_; what follows is compared
with memory that float64 never saw written: 'nan off', or an alert."""
import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.zeros_like(x)
        twice[(1,)](x.contiguous(), y, x.numel(), BLOCK=128)
        return y

    @staticmethod
    def backward(ctx, g):
        return 2 * g


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.b(Twice.apply(self.a(x)))


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(3):
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
