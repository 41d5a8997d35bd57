"""DQN with replay, epsilon decay and a hard target sync on a chain of ten cells, 800 steps.

Healthy: Q(start) rises to the discounted return
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)


def net():
    return nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 2))


online, target = net(), net()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
eye = torch.eye(10)
memory, s, t = [], 0, 0
for step in range(860):
    eps = max(0.1, 1 - step / 400)
    with torch.no_grad():
        a = random.randrange(2) if random.random() < eps else online(eye[s]).argmax().item()
    s2, t = max(0, min(9, s + (1 if a else -1))), t + 1
    done = s2 == 9
    memory.append((s, a, 1.0 if done else -0.01, s2, float(done)))
    s, t = (0, 0) if done or t >= 60 else (s2, t)
    if len(memory) < 60:
        continue
    bs, ba, br, bn, bd = map(torch.tensor, zip(*random.sample(memory, 32)))
    with torch.no_grad():
        goal = br + 0.95 * (1 - bd) * target(eye[bn]).max(1).values
    loss = F.smooth_l1_loss(online(eye[bs]).gather(1, ba[:, None])[:, 0], goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    if step % 25 == 0:
        target.load_state_dict(online.state_dict())
print("end: loss", loss.item(), "Q(start)", online(eye[0]).tolist())
