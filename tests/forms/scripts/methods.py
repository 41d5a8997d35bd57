import torch
from torch import nn

torch.manual_seed(0)


class Agent(nn.Module):
    def __init__(s):
        super().__init__()
        s.body = nn.Linear(4, 8)
        s.critic = nn.Linear(8, 1)
        s.actor = nn.Linear(8, 2)

    def value(s, x, bad=False):
        h = s.body(x)
        if bad:
            h = torch.log(h - 100)  # FAULT
        return s.critic(h)

    def act(s, x):
        return s.actor(torch.relu(s.body(x)))


agent = Agent()
opt = torch.optim.Adam(agent.parameters(), lr=0.01)
for i in range(4):
    x = torch.randn(3, 4)
    loss = agent.value(x, i == 2).square().mean() + agent.act(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
