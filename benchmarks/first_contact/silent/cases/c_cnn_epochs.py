"""A CNN with BatchNorm and dropout, DataLoader with shuffling, OneCycle, validation after each epoch, early end; 8 epochs of 40 batches.

Healthy: validation accuracy rises
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
from torch.utils.data import DataLoader, TensorDataset

pattern = torch.randn(5, 1, 8, 8)
y = torch.randint(0, 5, (800,))
data = TensorDataset(0.6 * pattern[y] + torch.randn(800, 1, 8, 8), y)
train, val = torch.utils.data.random_split(data, [640, 160])
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=320)
for epoch in range(8):
    model.train()
    for x, t in DataLoader(train, 16, shuffle=True):
        loss = F.cross_entropy(model(x), t, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == t).sum().item() for x, t in DataLoader(val, 32))
    print(epoch, loss.item(), right / 160)
print("end:", right / 160)
