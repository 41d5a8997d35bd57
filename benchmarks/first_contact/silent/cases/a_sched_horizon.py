"""A cosine schedule that steps at each iteration gets its horizon in epochs: the rate swings to zero and back.

Source: https://github.com/ScrollPrize/villa/pull/1495
Truth: T_max is 10, the scheduler steps 300 times; the rate is at its peak again 14 times
Could a tool know: yes: a CosineAnnealingLR steps far beyond its T_max, the rate rises
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

centers = torch.randn(10, 20)


def batch(n=64):
    y = torch.randint(0, 10, (n,))
    return centers[y] + torch.randn(n, 20), y


EPOCHS, STEPS = 10, 30
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
horizon = EPOCHS * STEPS if HEALTHY else EPOCHS
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=horizon)
rates = []
for epoch in range(EPOCHS):
    for _ in range(STEPS):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    print(epoch, round(loss.item(), 4), "lr", rates[-1])
print("end: times the rate was back at its peak", sum(r > 1.99e-3 for r in rates[5:]))
