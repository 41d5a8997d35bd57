"""A residual network without normalization, SGD with momentum, warm-up to 0.3.

Twin: warm-up to 0.01 and clipping
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


model = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), *[Res(12) for _ in range(4)], nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 5))
pattern = torch.randn(5, 3, 8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 if HEALTHY else 0.3, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 300))
for step in range(300):
    y = torch.randint(0, 5, (16,))
    x = pattern[y] * 0.4 + torch.randn(16, 3, 8, 8)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    if HEALTHY:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    print("L", step, loss.item())
