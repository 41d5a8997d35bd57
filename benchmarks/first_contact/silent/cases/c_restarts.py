"""SGD with momentum and cosine restarts (T_0 = 60, T_mult = 2) on blobs, 420 steps.

Healthy: the loss falls, with bumps at restarts
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)

model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 60, 2)
centers = torch.randn(8, 20)
for step in range(420):
    y = torch.randint(0, 8, (32,))
    loss = F.cross_entropy(model(centers[y] + 1.2 * torch.randn(32, 20)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
print("end:", loss.item())
