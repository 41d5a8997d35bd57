"""custom Function that computes by NumPy: log of 0
Source: discuss.pytorch.org: extending torch with NumPy
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

import numpy as np


class NumpyLog(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with np.errstate(all="ignore"):
            return torch.from_numpy(np.log(x.detach().numpy()))

    @staticmethod
    def backward(ctx, g):
        return g / ctx.saved_tensors[0]


def loss_at(k):
    p = model(torch.randn(8, 6)).sigmoid() * (1.0 if k != 3 else 0.0)
    return -NumpyLog.apply(p).mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
