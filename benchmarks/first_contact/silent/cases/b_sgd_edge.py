"""Gradient descent just beyond the edge of stability: a wide linear network whose rate is 0.4 % above 2 / sharpness.

Twin: a rate of half of that
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

X = torch.randn(64, 10)
Y = X @ torch.randn(10, 3)
model = nn.Linear(10, 3)
sharp = 2 * torch.linalg.eigvalsh(torch.cat([X, torch.ones(64, 1)], 1).T @ torch.cat([X, torch.ones(64, 1)], 1) / 64 / 3).max()
optimizer = torch.optim.SGD(model.parameters(), lr=float(2 / sharp) * (0.5 if HEALTHY else 1.004))
for step in range(400):
    i = torch.arange(64)
    loss = F.mse_loss(model(X[i]), Y[i])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("L", step, loss.item())
