"""weights of samples normalized in place, all 0
Source: MrLeeeee/GCN-GAT-and-Graphsage#3
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
    w = torch.rand(8) if k != 2 else torch.zeros(8)
    w /= w.sum()
    return (w[:, None] * out.square()).sum()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
