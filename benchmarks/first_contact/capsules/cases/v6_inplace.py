"""Shortest: a remedy that holds for torch.log isn't kept on for x.log_(), and no line says why; each such step is left out."""
import sys
import torch
from torch import nn

import kit


class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = torch.relu(self.a(x)) * 1
        return self.b(h.log_())


torch.manual_seed(1)
model = N()
opt = torch.optim.SGD(model.parameters(), 0.01)
for k in range(12):
    opt.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    opt.step()
