"""masked softmax pooling in the loss, a row with all -inf
Source: pytorch/pytorch#41508, pytorch/pytorch#131060
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    x = torch.randn(4, 5, 6)
    out = model(x)
    lengths = torch.tensor([5, 3, 0 if k == 3 else 2, 1])
    mask = torch.arange(5)[None] >= lengths[:, None]
    w = out[..., 0].masked_fill(mask, float("-inf")).softmax(1)
    return ((w[..., None] * out).sum(1) - 1).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
