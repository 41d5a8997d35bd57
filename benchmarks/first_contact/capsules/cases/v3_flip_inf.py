"""Shortest: a checked step in which one bit makes a 1 an inf; docs/alerts/again.md says that the alert names this bit."""
import torch
from torch import nn

import kit

torch.manual_seed(2)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU6(), nn.Linear(16, 4))
with torch.no_grad():
    model[0].bias[3] = 40.0  # one column is 6 after ReLU6
opt = torch.optim.SGD(model.parameters(), 0.1)


class Sixth(nn.Module):
    def forward(self, x):
        return x / 6


model.insert(2, Sixth())
kit.flip("aten.div.Tensor", 1, 30, element=3)
for kit.now in range(4):
    opt.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    opt.step()
