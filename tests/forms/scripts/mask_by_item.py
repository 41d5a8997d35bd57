"""Writes a mask into the model's output by item assignment, every step; the fault lies before it."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x, scale):
        h = F.relu(self.inner(x))
        h = h / scale  # FAULT
        logits = self.outer(h)
        logits[..., 0] = float("-inf")
        return logits


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(8):
    scale = torch.ones(16, 1)
    if step == 5:
        scale[3] = 0
    loss = F.cross_entropy(net(torch.randn(16, 8), scale), torch.randint(1, 5, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
