"""accumulation of four micro-batches, clipping, a schedule
Source: karpathy/nanoGPT train loop
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4))
opt = torch.optim.AdamW(model.parameters(), 1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 7)

def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))

for k in range(7):
    for _ in range(4):
        loss = loss_at(k) / 4
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    opt.zero_grad(set_to_none=True)
    print(k, kit.bits(loss), kit.digest(model, opt))
