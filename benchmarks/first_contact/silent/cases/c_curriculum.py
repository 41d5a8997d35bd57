"""A GRU adds numbers; the sequences become longer every 150 steps, Adam with clipping, 600 steps.

Healthy: the loss falls within each stage
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(1, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])[:, 0]


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(600):
    n = (4, 7, 10, 13)[step // 150]
    x = torch.rand(32, n, 1)
    loss = F.mse_loss(model(x), x.sum((1, 2)))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print("end:", loss.item())
