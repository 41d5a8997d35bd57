"""forward addmm of layer 2, bit 18 (mantissa)
Source: arXiv 2605.04213; docs/alerts/again.md
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))

kit.flip("aten.addmm.default", 4, 18, nth=1)
for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
