"""The optimizer is given the parameters of another network of the same shape.

Source: https://github.com/siddancha/streaming-flow-policy/pull/15
Truth: the trained network is bit for bit as at the start
Could a tool know: yes: gradients arrive at parameters that no optimizer has, and its own get none
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

def net():
    return nn.Sequential(nn.Linear(6, 64), nn.Mish(), nn.Linear(64, 64), nn.Mish(), nn.Linear(64, 2))


flow, noise_net = net(), net()
before = noise_net[0].weight.detach().clone()
optimizer = torch.optim.AdamW((noise_net if HEALTHY else flow).parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 250)
losses = []
for step in range(250):
    obs = torch.randn(64, 3)
    action = torch.tanh(obs[:, :2])
    noise, t = torch.randn(64, 2), torch.rand(64, 1)
    x = (1 - t) * action + t * noise
    loss = F.mse_loss(noise_net(torch.cat([x, obs, t], 1)), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: trained network unchanged", torch.equal(before, noise_net[0].weight))
