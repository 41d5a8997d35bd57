"""svd's backward with several singular values of 0
Source: pytorch/pytorch#49886
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Linear(5, 5)
opt = torch.optim.SGD(model.parameters(), 1e-2)


def loss_at(k):
    y = model(torch.randn(5, 5))
    if k == 2:
        y = y * torch.tensor([1.0, 1, 0, 0, 0])
    u, s, vh = torch.linalg.svd(y)
    return (u @ torch.diag(s) @ vh).square().mean() + (u.abs() * vh.abs()).sum()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
