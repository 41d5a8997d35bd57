"""Matrix factorization by SGD with momentum; the rate grows by 2 % a step (bold driver without its brake).

Twin: a constant rate
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(60, 8), nn.Embedding(80, 8)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1)


model, U, V = MF(), torch.randn(60, 4), torch.randn(80, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1.0 if HEALTHY else 1.02)
for step in range(400):
    u, i = torch.randint(0, 60, (128,)), torch.randint(0, 80, (128,))
    rating = (U[u] * V[i]).sum(1) + 0.3 * torch.randn(128)
    loss = F.mse_loss(model(u, i), rating)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print("L", step, loss.item())
