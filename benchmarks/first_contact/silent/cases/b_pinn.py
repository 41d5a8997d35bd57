"""A physics-informed network for u'' = -u: the boundary's weight is raised by 4 % each step, plain SGD with momentum.

Twin: a constant weight, Adam
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
if HEALTHY:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3, momentum=0.9)
weight = 1.0
for step in range(300):
    x = (torch.rand(32, 1) * 3).requires_grad_()
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (d2u,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    edge = model(torch.tensor([[0.0], [1.5708]])) - torch.tensor([[0.0], [1.0]])
    loss = (d2u + u).pow(2).mean() + weight * edge.pow(2).mean()
    if not HEALTHY:
        weight *= 1.04
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("L", step, loss.item())
