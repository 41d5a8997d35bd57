"""a focal weight with a gradient through a custom double backward
Source: caogang/wgan-gp#16 (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters(), 1e-3)


def loss_at(k):
    x = torch.randn(8, 6, requires_grad=True)
    (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    cos = (g * x).sum(1) / (g.detach().norm(dim=1) * x.detach().norm(dim=1) * (1 if k != 2 else 0))
    return cos.square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
