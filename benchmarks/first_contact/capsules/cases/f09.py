"""a flip to inf in addmm (all exponent bits), with skip
Source: arXiv 2605.04213; docs/alerts/again.md
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(self.a(x).abs().clamp(1.0, 1.9))  # 0x3f...: bit 30 makes 1.x an inf or nan


model = N()
opt = torch.optim.SGD(model.parameters(), 0.1)

def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))

kit.flip("aten.clamp.default", 4, 30, element=9)
for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
