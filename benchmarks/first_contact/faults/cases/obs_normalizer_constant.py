"""A running observation normaliser without eps: a sensor that is constant has variance 0.
Source: Own: VecNormalize's epsilon left out."""
import sys
import gymnasium as gym
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Running(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("m2", torch.zeros(n))

    def update(self, x):
        self.count += 1
        delta = x - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (x - self.mean)

    def forward(self, x):
        var = self.m2 / self.count
        if CURED:
            var = var + 1e-8
        return (x - self.mean) / torch.sqrt(var)  # FAULT


env = gym.make("CartPole-v1")
norm, net = Running(5), nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(3):
    obs, _ = env.reset(seed=episode)
    logps, done, steps = [], False, 0
    seen = []
    while not done and steps < 20:
        x = torch.cat([torch.as_tensor(obs), torch.ones(1)])  # a sensor that is not connected reads 1
        norm.update(x)
        seen.append(x)
        obs, r, done, cut, _ = env.step(steps % 2)
        steps += 1
    logits = net(norm(torch.stack(seen)))
    loss = -(logits.log_softmax(-1)[:, 0] * torch.arange(steps, 0, -1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(episode, loss.item())
