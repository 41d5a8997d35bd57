"""Twin: the method x.log(), not torch.log
Source: HobbitLong/SupContrast#104
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = F.relu(self.a(x)) + (0.1 if kit.now < 3 else 0)
        return self.b((h.clamp_min(1e-6).log() if kit.now > 3 else h.log()))


model = Net()
opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)


def loss_at(k):
    x = torch.randn(8, 6)
    if k >= 3:
        x[2] = 0
    return model(x).square().mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    if k != 3:
        opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
