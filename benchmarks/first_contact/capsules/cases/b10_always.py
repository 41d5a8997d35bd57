"""Twin: rsqrt in one of two modules of one class
Source: keras-team/keras#2960
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Norm(nn.Module):
    def forward(self, x):
        return x * (torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) if kit.now >= 0 else torch.rsqrt(x.square().mean(-1, keepdim=True)))


model = nn.Sequential(Norm(), nn.Linear(6, 16), nn.ReLU(), Norm(), nn.Linear(16, 4))
opt = torch.optim.Adam(model.parameters(), 1e-3)


def loss_at(k):
    x = torch.randn(8, 6) + 0.1
    if k == 3 or k == 6:
        x[2] = 0
    return model(x).square().mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    if True:
        opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
