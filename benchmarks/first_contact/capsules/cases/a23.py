"""GradScaler's kind: the loss times a scale overflows float16
Source: huggingface/transformers#10956
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).half()
opt = torch.optim.SGD(model.parameters(), 1e-3)


def loss_at(k):
    x = torch.randn(8, 6).half()
    loss = (model(x) - 3).square().sum()
    scale = torch.tensor(8.0 if k < 3 else 65504.0, dtype=torch.float16)
    return loss * scale

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
