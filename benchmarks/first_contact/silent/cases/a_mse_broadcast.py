"""A hand-written squared error of (N, 1) predictions and (N,) targets: an N x N matrix, whose minimum is the targets' mean.

Source: https://github.com/deepset-ai/FARM/issues/229 (with nn.MSELoss torch warns, with a hand-written one it does not; the same in PacktPublishing/Deep-Reinforcement-Learning-Hands-On#33)
Truth: the loss stays at twice the targets' variance, the predictions at their mean; the twin fits
Could a tool know: yes: an elementwise operation of (N, 1) with (N,) gives (N, N)
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

w, v = torch.randn(12), torch.randn(12)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(300):
    x = torch.randn(64, 12)
    y = torch.sin(x @ w) + x @ v
    pred = model(x)
    if HEALTHY:
        pred = pred.squeeze(1)
    loss = (pred - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: deviation of the predictions", round(pred.std().item(), 3), "of the targets", round(y.std().item(), 3))
