"""a convolution's output, bit 22
Source: arXiv 2605.04213; docs/alerts/again.md
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
opt = torch.optim.SGD(model.parameters(), 0.1)


def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 1, 8, 8)), torch.randint(0, 4, (8,)))

kit.flip("aten.convolution.default", 4, 22, element=40)
for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
