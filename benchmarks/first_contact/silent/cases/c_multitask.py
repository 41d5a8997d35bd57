"""Two tasks on one trunk, with learned uncertainty weights (Kendall), AdamW, 500 steps.

Healthy: both losses fall
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
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.cls, self.reg = nn.Linear(64, 4), nn.Linear(64, 1)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.trunk(x)
        return self.cls(h), self.reg(h)[:, 0]


model, w, v = Net(), torch.randn(12, 4), torch.randn(12)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(500):
    x = torch.randn(32, 12)
    c, r = model(x)
    a = F.cross_entropy(c, (x @ w).argmax(1))
    b = F.mse_loss(r, torch.sin(x @ v))
    loss = (-model.log_var[0]).exp() * a + (-model.log_var[1]).exp() * b + model.log_var.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("end:", a.item(), b.item())
