"""PPO on a bandit with context: 30 rollouts, 4 epochs of 4 minibatches each, entropy bonus, clipping of 0.5.

Healthy: the reward rises
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
        self.critic = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))


agent, rule = Agent(), torch.randn(6, 3)
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
for update in range(30):
    s = torch.randn(128, 6)
    with torch.no_grad():
        dist = torch.distributions.Categorical(logits=agent.actor(s))
        a = dist.sample()
        old, r = dist.log_prob(a), (a == (s @ rule).argmax(1)).float()
        adv = r - agent.critic(s)[:, 0]
    for _ in range(4):
        for i in torch.randperm(128).split(32):
            dist = torch.distributions.Categorical(logits=agent.actor(s[i]))
            ratio, g = (dist.log_prob(a[i]) - old[i]).exp(), (adv[i] - adv[i].mean()) / (adv[i].std() + 1e-8)
            pg = -torch.min(ratio * g, ratio.clamp(0.8, 1.2) * g).mean()
            loss = pg + 0.5 * F.mse_loss(agent.critic(s[i])[:, 0], r[i]) - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
print("end: reward", r.mean().item())
