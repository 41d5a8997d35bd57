"""Healthy. Source: PyTorch docs, custom operators: a right torch.library operator and a right autograd.Function through NumPy
"""
# CHECK float64
import hashlib
import math
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
@torch.library.custom_op("h26::swish", mutates_args=())
def swish(x: torch.Tensor) -> torch.Tensor:
    n = x.detach().numpy()
    return torch.from_numpy(n / (1 + np.exp(-n)))


def backward(ctx, g):
    (x,) = ctx.saved_tensors
    s = x.sigmoid()
    return g * s * (1 + x * (1 - s))


swish.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(np.logaddexp(x.detach().numpy(), np.zeros((), x.detach().numpy().dtype)))

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].sigmoid()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 24), nn.Linear(24, 2)

    def forward(self, x):
        return self.b(Softplus.apply(swish(self.a(x))))


model = Net()
x, y = torch.randn(4, 16, 8), torch.randn(4, 16, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
