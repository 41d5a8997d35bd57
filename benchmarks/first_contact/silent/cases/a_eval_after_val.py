"""Validation calls model.eval() in mid-epoch and nobody calls train() again.

Source: https://github.com/joeynmt/joeynmt/issues/184
Truth: model.training is False at the end
Could a tool know: yes
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


model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model.train()
for step in range(300):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 59:
        model.eval()
        with torch.no_grad():
            x, y = batch(256)
            print(step, round(loss.item(), 4), "accuracy", (model(x).argmax(1) == y).float().mean().item())
        if HEALTHY:
            model.train()
print("end: training", model.training)
