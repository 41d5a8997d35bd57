"""mean squared error in float16 overflows
Source: huggingface/transformers#9295 (half precision loss), huggingface/transformers#4586
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    x = torch.randn(8, 6)
    target = torch.randn(8, 4) * (1.0 if k != 3 else 400.0)
    d = model(x).half() - target.half()
    return (d * d).mean().float()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
