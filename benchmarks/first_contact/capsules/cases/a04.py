"""features divided by their norm, a row of zeros
Source: lukasruff/Deep-SVDD-PyTorch#10
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16, bias=False), nn.ReLU())
opt = torch.optim.Adam(model.parameters(), 1e-2)


def loss_at(k):
    x = torch.rand(8, 6)
    if k == 2:
        x[3] = 0
    f = model(x)
    f = f / f.norm(dim=1, keepdim=True)
    return (f @ f.T - torch.eye(8)).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
