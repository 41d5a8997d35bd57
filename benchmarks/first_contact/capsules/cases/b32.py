"""a loss bad for more than ten steps: stops
Source: docs/run.md
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05)


def loss_at(k):
    p = (model(torch.randn(16, 6)) * (1.0 if k < 3 else 1000.0)).softmax(-1)
    return -(torch.rand(16, 4) * torch.log(p)).mean()

for k in range(16):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
