"""a compiled model (documented: not healed)
Source: docs/run.md
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8, bias=False), nn.Linear(8, 4)

    def forward(self, x):
        h = F.relu(self.a(x))
        return self.b(torch.log(h + x.abs().sum(-1, keepdim=True)))


model = Net()
compiled = torch.compile(model, backend="aot_eager")
opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)


def loss_at(k):
    x = torch.randn(8, 6)
    if k >= 3:
        x[2] = 0 if k in (3, 5) else 1
    return compiled(x).square().mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    if k not in (3, 5):
        opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
