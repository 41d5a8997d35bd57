"""The target network loads its own state instead of the online network's.

Source: https://github.com/thesouther/MARL/issues/8
Truth: the target is bit for bit its initialization at the end
Could a tool know: yes: load_state_dict copies tensors onto themselves; the target stays at its initialization
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import random


class Chain:
    """Ten cells; right reaches the goal (reward 1), each step costs 0.01."""

    def reset(self):
        self.s, self.t = 0, 0
        return self.obs()

    def obs(self):
        return F.one_hot(torch.tensor(self.s), 10).float()

    def step(self, a):
        self.s = max(0, min(9, self.s + (1 if a == 1 else -1)))
        self.t += 1
        return self.obs(), (1.0 if self.s == 9 else -0.01), self.s == 9, self.t >= 60


def net():
    return nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))


random.seed(0)
online, target = net(), net()
target.load_state_dict(online.state_dict())
first = target[0].weight.detach().clone()
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
env, memory = Chain(), []
s = env.reset()
for step in range(600):
    a = random.randrange(2) if random.random() < 0.3 else online(s).argmax().item()
    s2, r, done, cut = env.step(a)
    memory.append((s, a, r, s2, float(done)))
    s = env.reset() if done or cut else s2
    if len(memory) < 64:
        continue
    bs, ba, br, bn, bd = zip(*random.sample(memory, 32))
    bs, bn, ba = torch.stack(bs), torch.stack(bn), torch.tensor(ba)
    with torch.no_grad():
        goal = torch.tensor(br) + 0.97 * (1 - torch.tensor(bd)) * target(bn).max(1).values
    loss = F.smooth_l1_loss(online(bs).gather(1, ba[:, None])[:, 0], goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        target.load_state_dict((online if HEALTHY else target).state_dict())
        print(step, round(loss.item(), 5))
print("end: target is its initialization", torch.equal(first, target[0].weight))
