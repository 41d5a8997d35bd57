import torch
from torch import nn

actor, critic = nn.Linear(4, 4), nn.Linear(4, 1)
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
for _ in range(3):
    penalty = (actor(torch.ones(2, 4)).abs() + 10) * 3e38  # FAULT
    loss = (critic(torch.ones(2, 4)) - penalty.mean()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
