"""log in a loss outside
Source: RasmussenLab/vamb#12
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05)


def nll(p, y):
    return -torch.log(p.gather(1, y[:, None])).mean()


def loss_at(k):
    x = torch.randn(16, 6)
    p = (model(x) * (1.0 if k not in (3, 5) else 1000.0)).softmax(-1)
    return nll(p, torch.randint(0, 4, (16,)))

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
