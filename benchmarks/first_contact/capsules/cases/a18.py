"""WGAN-GP: sqrt of a sum of squares of gradients that are 0
Source: pytorch/pytorch#2534, keras-team/keras-io#910
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters(), 1e-3)


def loss_at(k):
    x = torch.randn(8, 6) if k != 2 else torch.zeros(8, 6)
    if k == 2:
        with torch.no_grad():
            model[0].bias.fill_(-1)
    x.requires_grad_()
    out = model(x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    norm = torch.sqrt(torch.sum(g**2, dim=1))
    return out.mean() + 10 * ((norm - 1) ** 2).mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
