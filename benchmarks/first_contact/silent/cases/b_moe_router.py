"""Four experts without balancing, AdamW, the rate grows by 2 % a step (a schedule with the wrong sign).

Twin: the rate falls by 1 % a step
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class MoE(nn.Module):
    def __init__(self, d=16, n=4):
        super().__init__()
        self.router = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.GELU(), nn.Linear(32, d)) for _ in range(n))

    def forward(self, x):
        weight, which = self.router(x).softmax(-1).topk(2, -1)
        every = torch.stack([e(x) for e in self.experts], 1)
        return x + (every.gather(1, which[..., None].expand(-1, -1, x.shape[1])) * weight[..., None]).sum(1)


model = nn.Sequential(nn.Linear(8, 16), MoE(), MoE(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99 if HEALTHY else 1.02)
w = torch.randn(8, 2)
for step in range(400):
    x = torch.randn(32, 8)
    loss = F.mse_loss(model(x), torch.sin(x @ w))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print("L", step, loss.item())
