"""logdet of a singular covariance
Source: pytorch/pytorch#69532 (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    z = model(torch.randn(8, 6))
    z = z * torch.tensor([1.0, 1, 0 if k == 2 else 1, 1])
    cov = z.T @ z / 8
    return z.square().mean() - 0.01 * torch.logdet(cov)

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
