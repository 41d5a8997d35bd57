"""zero_grad is called for each micro-batch: all but the last one's gradients are lost.

Source: https://github.com/bytetriper/RAE/issues/67
Truth: order of calls: three of four backwards are cleared before the step
Could a tool know: yes: gradients that backward made are cleared and no optimizer stepped
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

centers = torch.randn(10, 20)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(200):
    if HEALTHY:
        optimizer.zero_grad(set_to_none=True)
    for micro in range(4):
        if not HEALTHY:
            optimizer.zero_grad(set_to_none=True)
        y = torch.randint(0, 10, (16,))
        loss = F.cross_entropy(model(centers[y] + torch.randn(16, 20)), y) / 4
        loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item() * 4, 4))
norm = sum(p.grad.pow(2).sum() for p in model.parameters()).sqrt().item()
print("end: norm of the last step's gradient", round(norm, 4))
