"""a helper in another file, which a loss outside calls too
Source: RasmussenLab/vamb#12
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
from layers_of_b31 import entropy

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        p = self.a(x).softmax(-1) if kit.now < 3 else (self.a(x) * 1e4).softmax(-1)
        return self.b(p) + entropy(p)


model = Net()
opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)


def loss_at(k):
    x = torch.randn(8, 6)
    if k >= 3:
        x[2] = 0
    out = model(x)
    return out.square().mean() + 0.1 * entropy(out.softmax(-1)).mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
