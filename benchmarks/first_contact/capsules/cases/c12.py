"""an EMA teacher (BYOL)
Source: lucidrains/byol-pytorch (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
import copy

model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
teacher = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.SGD(model.parameters(), 0.05)


def loss_at(k):
    x = torch.randn(8, 6)
    with torch.no_grad():
        t = F.normalize(teacher(x + 0.1 * torch.randn_like(x)), dim=1)
    s = F.normalize(model(x), dim=1)
    with torch.no_grad():
        for p, q in zip(teacher.parameters(), model.parameters()):
            p.lerp_(q, 0.01)
    return (2 - 2 * (s * t).sum(1)).mean()

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
