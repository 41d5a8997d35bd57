"""PoissonNLLLoss(log_input=False, eps=0): log of 0
Source: pytorch docs PoissonNLLLoss eps
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

criterion = nn.PoissonNLLLoss(log_input=False, eps=0.0)


def loss_at(k):
    rate = F.relu(model(torch.randn(8, 6)))
    rate = rate + 0.1 if k != 2 else rate
    return criterion(rate, torch.randint(0, 4, (8, 4)).float())

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
