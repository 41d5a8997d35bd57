"""Shortest: a flipped bit makes a nan in the forward; the note names the backward ("grad output", "bad input data")."""
import torch
from torch import nn

import kit


class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(self.a(x).abs().clamp(1.0, 1.9))


torch.manual_seed(5)
model = N()
opt = torch.optim.SGD(model.parameters(), 0.1)
kit.flip("aten.clamp.default", 1, 30, element=20)
for kit.now in range(4):
    opt.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    opt.step()
