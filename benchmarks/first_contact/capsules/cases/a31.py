"""hand-made layer norm without eps on a constant row
Source: keras-team/keras#2960, FluxML/Flux.jl#2096
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

    def forward(self, x, k):
        h = self.a(x)
        if k == 3:
            h = h * 0 + 1
        h = (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True)
        return self.b(h)


model = Net()
opt = torch.optim.SGD(model.parameters(), 0.02)


def loss_at(k):
    return model(torch.randn(8, 6), k).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
