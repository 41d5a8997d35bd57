"""log of a probability that softmax made 0
Source: RasmussenLab/vamb#12
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    x = torch.randn(16, 6)
    y = F.one_hot(torch.randint(0, 4, (16,)), 4).float()
    p = (model(x) * (1000.0 if k == 3 else 1.0)).softmax(-1)
    return -(y * torch.log(p)).sum(-1).mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
