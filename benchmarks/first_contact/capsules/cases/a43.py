"""segment_reduce's mean of an empty segment
Source: MrLeeeee/GCN-GAT-and-Graphsage#3 (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    out = model(torch.randn(8, 6)).sum(1)
    lengths = torch.tensor([3, 2, 3] if k != 3 else [5, 0, 3])
    return torch.segment_reduce(out, "mean", lengths=lengths).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
