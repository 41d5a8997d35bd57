"""Benign: MaskablePPO-like masked logits (-inf) in a Categorical with log-probability and entropy.
Source: Stable-Baselines3-contrib's MaskablePPO; Categorical.entropy clamps logits."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 6))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    obs = torch.randn(8, 5)
    legal = torch.rand(8, 6) < 0.6
    legal[:, 0] = True
    dist = Categorical(logits=net(obs).masked_fill(~legal, float("-inf")))
    act = dist.sample()
    loss = -(dist.log_prob(act) * torch.randn(8)).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite() and all(p.isfinite().all() for p in net.parameters())
