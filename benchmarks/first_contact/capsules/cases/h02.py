"""healthy: batch norm and dropout
Source: pytorch/examples mnist
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(144, 4))
opt = torch.optim.AdamW(model.parameters(), 1e-3)


def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 1, 8, 8)), torch.randint(0, 4, (8,)))

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
