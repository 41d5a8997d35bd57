"""a rotary table that is made lazily and grows
Source: lucidrains/rotary-embedding-torch (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o, self.cache = nn.Linear(6, 8), nn.Linear(8, 4), {}

    def table(self, n):
        if n not in self.cache:
            self.cache[n] = torch.outer(torch.arange(n).float(), 0.1 ** torch.arange(8.0))
        return self.cache[n]

    def forward(self, x):
        q = self.q(x)
        t = self.table(x.shape[1])
        return self.o(q * t.cos() + q.flip(-1) * t.sin()).mean(1)


model = N()
opt = torch.optim.NAdam(model.parameters(), 1e-2)


def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 4 + k, 6)), torch.randint(0, 4, (8,)))

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
