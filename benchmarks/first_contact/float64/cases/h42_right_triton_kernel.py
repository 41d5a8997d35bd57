"""Healthy. Source: triton-lang/triton, tutorial 05 as it should be (the twin of w04), under the interpreter
"""
# CHECK float64
import hashlib
import math
import os
os.environ["TRITON_INTERPRET"] = "1"
import triton
import triton.language as tl
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
@triton.jit
def norm(x_ptr, y_ptr, r_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    c = tl.where(at < n, x - tl.sum(x, axis=0) / n, 0.0)
    var = tl.sum(c * c, axis=0) / n
    r = 1 / tl.sqrt(var + 1e-5)
    tl.store(y_ptr + row * n + at, c * r, mask=at < n)
    tl.store(r_ptr + row, r)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y, r = torch.empty_like(x), x.new_empty(x.shape[0])
        norm[(x.shape[0],)](x, y, r, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    def backward(ctx, g):
        y, r = ctx.saved_tensors
        return (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)) * r[:, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 24), nn.Linear(24, 2)

    def forward(self, x):
        return self.b(Norm.apply(self.a(x) + 3))


model = Net()
x, y = torch.randn(4, 6, 12), torch.randn(4, 6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
