"""Fault: pytorch/pytorch#198119. c01's first run named no part, on a busy machine; this one is named, without a line."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.AvgPool2d(3, 2, ceil_mode=True))
run = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(3):
    run(torch.randn(4, 1, 8, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
