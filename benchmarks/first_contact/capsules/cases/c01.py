"""channels_last convolutions
Source: pytorch tutorials memory_format
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
model = model.to(memory_format=torch.channels_last)
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


def loss_at(k):
    x = torch.randn(4, 3, 12, 12).to(memory_format=torch.channels_last)
    return F.cross_entropy(model(x), torch.randint(0, 4, (4,)))

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
