"""a sparse operand overflows (documented: no capsule, a line)
Source: pyg-team/pytorch_geometric#61 (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    a = torch.eye(8).to_sparse() * (1.0 if k != 3 else 3e38)
    return torch.sparse.mm(a, model(torch.randn(8, 6)) * 1e2).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
