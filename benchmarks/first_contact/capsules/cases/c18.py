"""augmentation in the forward by a torch.Generator of the script's own (a useful question)
Source: docs/alerts/again.md's table; invented
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
gen = torch.Generator().manual_seed(3)


class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.o = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = x + 0.1 * torch.randn(x.shape, generator=gen)
        return self.o(torch.relu(self.a(x)))


model = N()
opt = torch.optim.SGD(model.parameters(), 0.1)

def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
