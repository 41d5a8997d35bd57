"""eigh's backward at repeated eigenvalues
Source: pytorch/pytorch#49886, #52311
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Linear(4, 4, bias=False)
opt = torch.optim.SGD(model.parameters(), 1e-2)


def loss_at(k):
    cov = model(torch.eye(4))
    cov = cov @ cov.T + torch.diag(torch.arange(4.0))
    if k == 3:
        cov = cov * 0 + torch.eye(4)
    w, v = torch.linalg.eigh(cov)
    return (v.abs() * torch.rand(4, 4)).sum() + w.sum()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
