"""dice loss without smoothing on an empty mask
Source: nasa/delta#115
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def dice(p, t):
    return 1 - 2 * (p * t).sum(1) / (p.sum(1) + t.sum(1))


def loss_at(k):
    x = torch.randn(8, 6)
    t = (torch.rand(8, 4) > 0.3).float() if k != 2 else torch.zeros(8, 4)
    p = F.relu(model(x) - (100.0 if k == 2 else 0.0)) + (0.0 if k == 2 else 0.1)
    return dice(p, t).mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
