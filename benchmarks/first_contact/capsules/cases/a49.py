"""logsumexp's gradient where a row is all -inf (CRF)
Source: kmkurn/pytorch-crf (its kind), pytorch/pytorch#31829
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    s = model(torch.randn(8, 6))
    if k == 3:
        s = s.masked_fill(torch.arange(8)[:, None] == 4, float("-inf"))
    z = torch.logsumexp(s, 1)
    return torch.where(z.isinf(), torch.zeros_like(z), z).mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
