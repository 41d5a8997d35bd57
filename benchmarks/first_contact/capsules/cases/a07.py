"""InfoNCE written by hand: exp overflows
Source: HobbitLong/SupContrast#104
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def info_nce(a, b, tau):
    sim = torch.exp(a @ b.T / tau)
    return -torch.log(sim.diag() / sim.sum(1)).mean()


def loss_at(k):
    x = torch.randn(8, 6) * (1.0 if k != 2 else 40.0)
    return info_nce(model(x), model(x + 0.1 * torch.randn(8, 6)), 0.5 if k != 2 else 0.01)

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
