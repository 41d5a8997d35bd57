"""gradients divided by their norm in the script, which is 0
Source: pytorch/pytorch#2421 (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

for k in range(5):
    opt.zero_grad()
    loss = model(torch.randn(8, 6)).square().mean() * (1.0 if k != 3 else 0.0)
    loss.backward()
    for p in model.parameters():
        p.grad /= p.grad.norm()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
