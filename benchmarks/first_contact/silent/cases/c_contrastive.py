"""SimCLR with two noisy views, a projector, LARS-free SGD with cosine decay, 400 steps; then a linear probe of 100 steps on frozen features.

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

encoder = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
projector = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))
both = nn.Sequential(encoder, projector)
optimizer = torch.optim.SGD(both.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
centers = torch.randn(8, 20)
for step in range(400):
    x = centers[torch.randint(0, 8, (32,))] + 0.5 * torch.randn(32, 20)
    z = F.normalize(both(torch.cat([x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)])), dim=1)
    sim = (z @ z.T / 0.5).masked_fill(torch.eye(64, dtype=torch.bool), -1e9)
    loss = F.cross_entropy(sim, (torch.arange(64) + 32) % 64)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
print(loss.item())
encoder.eval().requires_grad_(False)
probe = nn.Linear(32, 8)
optimizer = torch.optim.Adam(probe.parameters(), lr=1e-2)
for step in range(100):
    y = torch.randint(0, 8, (32,))
    loss = F.cross_entropy(probe(encoder(centers[y] + 0.5 * torch.randn(32, 20))), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("end:", loss.item())
