"""Healthy. Source: pytorch/examples time_sequence_prediction, float64
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
x = torch.randn(32, 3).double()
y = x.sin().sum(-1, keepdim=True)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
for step in range(4):
    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss
    print(step, optimizer.step(closure).item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
