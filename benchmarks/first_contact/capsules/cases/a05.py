"""KL by hand with a probability of 0
Source: gaberoo at RasmussenLab/vamb#12
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def kl(p, q):
    return (p * (p / q).log()).sum(-1).mean()


def loss_at(k):
    q = model(torch.randn(8, 6)).softmax(-1)
    p = torch.rand(8, 4).softmax(-1)
    if k == 1:
        p = F.one_hot(torch.randint(0, 4, (8,)), 4).float()
    return kl(p, q)

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
