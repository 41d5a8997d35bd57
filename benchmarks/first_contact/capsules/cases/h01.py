"""healthy: bfloat16 autocast, Adam
Source: README's kind
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
opt = torch.optim.Adam(model.parameters(), 1e-3)


def loss_at(k):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
