"""GradScaler that skips its first steps
Source: pytorch docs amp examples
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.BatchNorm1d(16), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**19)

for k in range(10):
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(torch.randn(8, 6) * 4), torch.randint(0, 4, (8,)))
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(k, kit.bits(loss), kit.digest(model, opt), scaler.get_scale())
