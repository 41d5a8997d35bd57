"""The loss is not divided by the accumulation steps: gradients are 16 times as large.

Source: https://github.com/agokrani/distillKitPlus/issues/5
Truth: arithmetic: the gradient norm at the step is about 16 times the twin's
Could a tool know: partly: 16 backwards a step; whether the loss was divided is not seen, but the graph has no division
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
rule = torch.randn(16)
for step in range(150):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(16):
        x = torch.randn(8, 16)
        loss = F.mse_loss(model(x)[:, 0], torch.tanh(x @ rule))
        if HEALTHY:
            loss = loss / 16
        loss.backward()
        total += loss.item()
    norm = sum(p.grad.pow(2).sum() for p in model.parameters()).sqrt().item()
    optimizer.step()
    if step % 25 == 0:
        print(step, round(total, 4), "norm", round(norm, 4))
print("end: norm", round(norm, 4))
