"""batch norm with momentum None, transposed convolutions, an evaluation between steps
Source: pytorch/examples vae (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4, momentum=None), nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 2), nn.Sigmoid())
opt = torch.optim.RMSprop(model.parameters(), 1e-3)


def loss_at(k):
    model.eval()
    with torch.no_grad():
        model(torch.rand(2, 1, 8, 8))
    model.train()
    x = torch.rand(4, 1, 8, 8)
    return F.mse_loss(model(x), x)

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
