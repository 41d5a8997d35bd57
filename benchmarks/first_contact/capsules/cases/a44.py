"""einsum in float16 overflows in the loss
Source: huggingface/transformers#11461
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    h = model(torch.randn(3, 5, 6) * (1.0 if k != 2 else 10)).half() * (1.0 if k != 2 else 400.0)
    return torch.einsum("bid,bjd->bij", h, h).float().square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
