"""Q-learning without a target network, off-policy, gamma 0.999, unbounded features: the deadly triad.

Twin: a target network synced each 50 steps, gamma 0.9
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

GAMMA = 0.9 if HEALTHY else 0.999


def net():
    return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


online, target = net(), net()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=5e-4)
A = torch.randn(4, 6, 6) * 0.35
for step in range(600):
    s, a = torch.randn(32, 6), torch.randint(0, 4, (32,))
    s2 = torch.einsum("bij,bj->bi", A[a], s) + 0.1 * torch.randn(32, 6)
    s2 = s2 * (1.0 if HEALTHY else 1.6)
    r = -s2.abs().mean(1)
    with torch.no_grad():
        goal = r + GAMMA * (target if HEALTHY else online)(s2).max(1).values
    loss = F.mse_loss(online(s).gather(1, a[:, None])[:, 0], goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        target.load_state_dict(online.state_dict())
    print("L", step, loss.item())
