"""log1p at -1 after dropout, gradients accumulated
Source: invented (accumulation)
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
        h = torch.tanh(self.a(x)) if kit.now < 3 else self.a(x * 100).clamp(-1, 1)
        return self.b(F.dropout(torch.log1p(h), 0.2))


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
    for _ in range(2):
        loss = loss_at(k) / 2
        loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
