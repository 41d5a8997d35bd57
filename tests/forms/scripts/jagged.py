"""Batches of sequences of different lengths, as jagged nested tensors."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, weight):
        h = F.relu(self.inner(x))
        h = h / weight  # FAULT
        return self.outer(h)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(6):
    x = torch.nested.nested_tensor([torch.randn(n, 8) for n in (3, 5, 2)], layout=torch.jagged)
    weight = torch.tensor([1.0, float(step != 4), 1.0])[:, None, None]
    pooled = torch.stack([out.mean(0) for out in net(x, weight).unbind()])
    loss = F.cross_entropy(pooled, torch.arange(3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
