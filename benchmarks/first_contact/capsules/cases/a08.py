"""custom Function whose backward divides by what it saved
Source: discuss.pytorch.org: custom backward returns nan (pattern of banctilrobitaille/torch-vectorized#7)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

class LogAbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.log1p(x.abs()).sqrt()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        y = torch.log1p(x.abs()).sqrt()
        scale = x.sign() / (1 + x.abs())
        return g * scale / (2 * y)


def loss_at(k):
    out = model(torch.randn(8, 6))
    out = out * (1.0 if k != 3 else 0.0)
    return LogAbs.apply(out).mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
