"""Anomaly mode raises in the backward of the loss itself: what the model gets is never seen."""

import torch
from torch import nn

torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(8):
    x = torch.randn(16, 4)
    error = net(x) - x.sum(1, keepdim=True)
    distance = (error * (0 if step == 5 else 1)).norm(dim=1)
    loss = distance.pow(0.5).mean()  # FAULT
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
