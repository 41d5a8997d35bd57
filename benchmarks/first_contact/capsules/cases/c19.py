"""in-place residuals, gradients through clone, a frozen trunk
Source: pytorch/vision finetuning (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(6, 16), nn.ReLU(inplace=True)).requires_grad_(False)


class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.b, self.o = trunk, nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.trunk(x).clone()
        h = h + self.b(h).tanh()
        h.mul_(0.5).add_(1)
        return self.o(h)


model = N()
opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1, nesterov=True, momentum=0.9)

def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
