"""RMSE of an exact prediction: sqrt's gradient at 0
Source: pytorch/pytorch#2421 (albanD's comment), seantalts/stanli#144
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

for k in range(5):
    opt.zero_grad()
    x = torch.randn(8, 6)
    out = model(x)
    target = out.detach().clone() if k == 3 else torch.randn(8, 4)
    loss = torch.sqrt(((out - target) ** 2).mean())
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
