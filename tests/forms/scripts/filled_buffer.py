# A helper fills a buffer with a number that is none, after more calls of the model than are recorded operation by operation.
import math

import torch
from torch import nn


def keep(rewards, at):
    rewards[at] = math.inf if at == 10 else 1.0  # FAULT


torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 1e-3)
for _ in range(2):
    rewards, values = torch.zeros(12), []
    for at in range(12):
        values.append(net(torch.randn(4)))
        keep(rewards, at)
    loss = (torch.cat(values) * rewards).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
