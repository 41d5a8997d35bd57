"""angle loss: atan2's gradient at (0, 0)
Source: pytorch/pytorch#61810 (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    out = model(torch.randn(8, 6))
    if k == 3:
        out = out * 0
    angle = torch.atan2(out[:, 0], out[:, 1])
    return (1 - torch.cos(angle)).mean() + out.square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
