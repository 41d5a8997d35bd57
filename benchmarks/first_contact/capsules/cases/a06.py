"""focal loss with gamma 0.5 where p is 1: pow's gradient
Source: kaidic/LDAM-DRW#17, fizyr/keras-retinanet#706
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def focal(logits, y, gamma=0.5):
    ce = F.cross_entropy(logits, y, reduction="none")
    pt = torch.exp(-ce)
    return ((1 - pt) ** gamma * ce).mean()


def loss_at(k):
    x = torch.randn(8, 6)
    logits = model(x)
    y = torch.randint(0, 4, (8,))
    if k == 3:
        logits, y = logits * 1e4, logits.argmax(-1)
    return focal(logits, y)

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
