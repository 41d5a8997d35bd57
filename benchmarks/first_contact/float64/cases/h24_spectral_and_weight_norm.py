"""Healthy. Source: pytorch docs, parametrizations
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

model = nn.Sequential(spectral_norm(nn.Linear(8, 16)), nn.ReLU(), weight_norm(nn.Linear(16, 8)), orthogonal(nn.Linear(8, 8)), nn.Linear(8, 1))
x, y = torch.randn(4, 16, 8), torch.randn(4, 16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
