"""Healthy. Source: a regression that has converged: outputs near targets, tiny gradients
"""
# CHECK float64:at=1,30,58
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 1))
x = torch.randn(60, 32, 4)
w = torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for step in range(60):
    loss = F.mse_loss(model(x[step]), x[step] @ w + 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
