"""Trains in autograd's anomaly mode, which raises in the backward before any module's gradient is bad."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, dead):
        h = self.first(x).relu()
        return self.last(torch.sqrt(h * (0 if dead else 1)))  # FAULT


torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
net = Net()
net.first.bias.data.fill_(5)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(8):
    x = torch.rand(4, 8)
    loss = (net(x, dead=step == 5) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
