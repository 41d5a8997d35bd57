"""PPO: the last minibatch has one transition, and advantages are divided by the std of one sample.
Source: quantumiracle/Popular-RL-Algorithms#45; DLR-RM/stable-baselines3 warns of it."""
import sys
import torch
from torch import nn
from torch.distributions import Normal

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.v = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(2))

    def forward(self, obs):
        return Normal(self.pi(obs), self.log_std.exp(), validate_args=False), self.v(obs).squeeze(-1)


net = ActorCritic()
opt = torch.optim.Adam(net.parameters(), lr=3e-4)
for update in range(1):
    obs, ret = torch.randn(33, 4), torch.randn(33)
    with torch.no_grad():
        dist, value = net(obs)
        act = dist.sample()
        old = dist.log_prob(act).sum(-1)
        adv = ret - value
    for idx in torch.randperm(33).split(16):
        a = adv[idx]
        if len(a) > 1 or not CURED:
            a = (a - a.mean()) / (a.std() + 1e-8)  # FAULT
        dist, value = net(obs[idx])
        ratio = (dist.log_prob(act[idx]).sum(-1) - old[idx]).exp()
        policy = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
        loss = policy + 0.5 * (value - ret[idx]).pow(2).mean() - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
    print(update, loss.item())
