"""Healthy. Source: pytorch/examples reinforcement_learning
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for episode in range(4):
    s, logs, rewards = torch.randn(4), [], []
    for _ in range(12):
        d = torch.distributions.Categorical(logits=model(s))
        a = d.sample()
        logs.append(d.log_prob(a))
        rewards.append(float(s[0] * (2 * a - 1)))
        s = 0.9 * s + 0.1 * torch.randn(4) + (a - 0.5) * 0.1
    r = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(logs) * (r - r.mean())).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(episode, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
