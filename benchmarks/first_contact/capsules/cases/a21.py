"""binary cross entropy by hand, a saturated sigmoid
Source: gnn-tracking/gnn_tracking#138
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    p = torch.sigmoid(model(torch.randn(8, 6)) * (1.0 if k != 3 else 500.0))
    y = (torch.rand(8, 4) > 0.5).float()
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
