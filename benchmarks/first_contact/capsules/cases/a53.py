"""an update that overflows (documented: no capsule, a line)
Source: README's kind: learning rate too high
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05)

for k in range(5):
    opt.zero_grad()
    loss = model(torch.randn(8, 6)).square().mean()
    loss.backward()
    opt.param_groups[0]["lr"] = 3e38 if k == 3 else 0.05
    for p in model.parameters():
        p.grad.mul_(1e3 if k == 3 else 1.0)
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
