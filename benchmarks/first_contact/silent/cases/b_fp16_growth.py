"""A residual network in pure float16 with a static loss scale, SGD with momentum: activations grow until float16 ends.

Twin: float32, a tenth of the rate
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

kind = torch.float32 if HEALTHY else torch.float16
SCALE = 1.0 if HEALTHY else 32.0


class Res(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


model = nn.Sequential(nn.Linear(16, 32), *[Res(32) for _ in range(4)], nn.LayerNorm(32), nn.Linear(32, 6)).to(kind)
optimizer = torch.optim.SGD(model.parameters(), lr=(0.02 if HEALTHY else 0.9) / SCALE, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 200))
w = torch.randn(16, 6)
for step in range(400):
    x = torch.randn(32, 16)
    y = (x @ w).argmax(1)
    y = torch.where(torch.rand(32) < 0.3, torch.randint(0, 6, (32,)), y)
    loss = F.cross_entropy(model(x.to(kind)).float(), y)
    optimizer.zero_grad()
    (loss * SCALE).backward()
    optimizer.step()
    schedule.step()
    print("L", step, loss.item())
