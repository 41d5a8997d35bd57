"""Healthy. Source: pytorch docs, CTCLoss
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(4, 16, 5, padding=2), nn.InstanceNorm1d(16), nn.ReLU(), nn.Conv1d(16, 6, 3, padding=1))
x, y = torch.randn(4, 3, 4, 30), torch.randint(1, 6, (4, 3, 8))
n, m = torch.tensor([30, 25, 20]), torch.tensor([8, 5, 3])
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
for step in range(4):
    loss = F.ctc_loss(model(x[step]).permute(2, 0, 1).log_softmax(-1), y[step], n, m)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
