"""softmax in an attention, bit 25
Source: arXiv 2605.04213; docs/alerts/again.md
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 24), nn.Linear(8, 4)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out((q @ k.transpose(1, 2)).softmax(-1) @ v).mean(1)


model = A()
opt = torch.optim.SGD(model.parameters(), 0.1)


def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 5, 6)), torch.randint(0, 4, (8,)))

kit.flip("aten._softmax.default", 4, 25, element=11)
for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
