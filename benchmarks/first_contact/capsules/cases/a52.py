"""_foreach_div_ of gradients by 0 in the script
Source: invented (lists of tensors)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

for k in range(5):
    opt.zero_grad()
    loss = model(torch.randn(8, 6)).square().mean()
    loss.backward()
    torch._foreach_div_([p.grad for p in model.parameters()], 0.0 if k == 3 else 1.0)
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
