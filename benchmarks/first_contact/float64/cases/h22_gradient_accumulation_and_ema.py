"""Healthy. Source: pytorch docs, swa_utils.AveragedModel
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = nn.Sequential(nn.Linear(12, 24), nn.Hardswish(), nn.Linear(24, 3))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, nesterov=True, momentum=0.9)
x, y = torch.randn(12, 8, 12), torch.randint(0, 3, (12, 8))
for step in range(4):
    optimizer.zero_grad()
    for k in range(3):
        loss = F.cross_entropy(model(x[3 * step + k]), y[3 * step + k]) / 3
        loss.backward()
    optimizer.step()
    ema.update_parameters(model)
    with torch.no_grad():
        e = F.cross_entropy(ema(x[0]), y[0])
    print(step, loss.item(), e.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model, ema] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
