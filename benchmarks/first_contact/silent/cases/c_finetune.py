"""Pretraining, then fine-tuning: the trunk frozen for 150 steps, then unfrozen at a tenth of the rate, 500 steps in all.

Healthy: the loss falls in each stage
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)

trunk = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
w1, w2 = torch.randn(16, 6), torch.randn(16, 4)


def fit(model, optimizer, w, steps):
    for _ in range(steps):
        x = torch.randn(32, 16)
        loss = F.cross_entropy(model(x), (x @ w).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


old = nn.Sequential(trunk, nn.Linear(64, 6))
print(fit(old, torch.optim.AdamW(old.parameters(), lr=2e-3), w1, 150))
trunk.requires_grad_(False)
model = nn.Sequential(trunk, nn.Linear(64, 4))
print(fit(model, torch.optim.AdamW(model[1].parameters(), lr=3e-3), w2, 150))
trunk.requires_grad_(True)
groups = [{"params": trunk.parameters(), "lr": 2e-4}, {"params": model[1].parameters(), "lr": 2e-3}]
print("end:", fit(model, torch.optim.AdamW(groups), w2, 200))
