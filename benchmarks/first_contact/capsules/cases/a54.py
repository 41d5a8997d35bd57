"""a nan in the batch (documented: no capsule, a line)
Source: DataLoader threads
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    x = torch.randn(8, 6)
    if k == 2:
        x = torch.tensor([float("nan")] + [1.0] * 47).view(8, 6)
    return model(x).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
