"""a line in a base class, two subclasses' modules
Source: HobbitLong/SupContrast#104
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Base(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.f = nn.Linear(n, m)

    def forward(self, x):
        return torch.log(F.relu(self.f(x)) + self.off())


class One(Base):
    def off(self):
        return 0.1


class Two(Base):
    def off(self):
        return 0.1 if kit.now < 3 else 0.0


model = nn.Sequential(One(6, 8), Two(8, 8), nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), 0.02)


def loss_at(k):
    return model(torch.randn(8, 6)).square().mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
