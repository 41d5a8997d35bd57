"""A deep autoencoder with NAdam; the rate is raised by ten each 60 steps.

Twin: the rate falls by ten after 150 steps
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

sizes = [24, 48, 24, 6, 24, 48, 24]
layers = []
for a, b in zip(sizes, sizes[1:]):
    layers += [nn.Linear(a, b), nn.ELU()]
model = nn.Sequential(*layers[:-1])
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3 if HEALTHY else 1e-4)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 150 if HEALTHY else 60, 0.1 if HEALTHY else 10.0)
mix = torch.randn(5, 24)
for step in range(360):
    x = torch.tanh(torch.randn(32, 5) @ mix)
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print("L", step, loss.item())
