"""PPO's old probabilities are recomputed from the current policy at each update: the ratio is always 1.

Source: https://github.com/abhisheksuran/Reinforcement_Learning/issues/4
Truth: the largest |ratio - 1| printed is 0: clipping never acts in several epochs
Could a tool know: partly: exp of an exact zero at each step
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

policy = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 3))
value = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-3)
rule = torch.randn(6, 3)
largest = 0.0
for update in range(25):
    s = torch.randn(256, 6)
    with torch.no_grad():
        dist = torch.distributions.Categorical(logits=policy(s))
        a = dist.sample()
        old = dist.log_prob(a)
        r = (a == (s @ rule).argmax(1)).float()
        adv = r - value(s)[:, 0]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for epoch in range(10):
        dist = torch.distributions.Categorical(logits=policy(s))
        new = dist.log_prob(a)
        if not HEALTHY:
            old = dist.log_prob(a).detach()
        ratio = (new - old).exp()
        largest = max(largest, (ratio - 1).abs().max().item())
        pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        loss = pg + 0.5 * F.mse_loss(value(s)[:, 0], r) - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if update % 5 == 0:
        print(update, "reward", round(r.mean().item(), 3))
print("end: largest |ratio - 1|", round(largest, 4))
