"""sparse-looking weights: log of a gumbel's uniform 0 drawn by the loss
Source: invented (random operator)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    out = model(torch.randn(8, 6))
    noise = torch.empty(8, 4).bernoulli_(0.5 if k == 3 else 1.0)
    return (out / noise).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
