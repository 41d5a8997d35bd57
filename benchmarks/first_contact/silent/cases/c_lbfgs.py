"""LBFGS with strong Wolfe line search, full batch, a small regression, 300 steps with a closure.

Healthy: the loss falls and stays
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)

X = torch.randn(100, 4)
Y = torch.sin(X @ torch.randn(4)) + 0.1 * torch.randn(100)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=4, history_size=10, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(model(X)[:, 0], Y) + 1e-3 * sum(p.pow(2).sum() for p in model.parameters())
    loss.backward()
    return loss


for step in range(300):
    loss = optimizer.step(closure)
print("end:", loss.item())
