"""checkpointed within the forward (documented: not healed)
Source: docs/run.md
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8, bias=False), nn.Linear(8, 4)

    def part(self, x):
        return torch.log(F.relu(self.a(x)) + x.abs().sum(-1, keepdim=True))

    def forward(self, x):
        return self.b(checkpoint(self.part, x, use_reentrant=False))


model = Net()
opt = torch.optim.SGD(model.parameters(), 0.02)


def loss_at(k):
    x = torch.randn(8, 6)
    if k in (3, 5):
        x[2] = 0
    return model(x).square().mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    if k not in (3, 5):
        opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
