"""VICReg's variance term with a batch of one
Source: karpathy/makemore#22, pytorch/pytorch#7716
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    z = model(torch.randn(8 if k != 2 else 1, 6))
    return F.relu(1 - z.std(dim=0)).mean() + z.square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
