"""geodesic loss: acos' gradient at 1
Source: pytorch/pytorch#61810, banctilrobitaille/torch-vectorized#7
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    a = F.normalize(model(torch.randn(8, 6)), dim=1)
    b = F.normalize(torch.randn(8, 4), dim=1)
    c = (a * b).sum(1) * 0.9
    if k == 2:
        c = (c * 100).clamp(-1, 1) if False else c / c.detach()
    return torch.acos(c).mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
