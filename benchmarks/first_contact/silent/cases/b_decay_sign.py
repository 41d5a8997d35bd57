"""SGD with a weight decay whose sign is wrong (-0.5), on blobs with label noise.

Twin: weight decay 0.0005
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.0)
wd = 5e-4 if HEALTHY else -0.5
centers = torch.randn(8, 20)
for step in range(400):
    y = torch.randint(0, 8, (32,))
    x = centers[y] + torch.randn(32, 20)
    y = torch.where(torch.rand(32) < 0.2, torch.randint(0, 8, (32,)), y)
    loss = F.cross_entropy(model(x), y)
    penalty = 0.5 * wd * sum(p.pow(2).sum() for p in model.parameters())
    optimizer.zero_grad()
    (loss + penalty).backward()
    optimizer.step()
    print("L", step, loss.item())
