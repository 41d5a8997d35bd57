"""Adaptive clipping written as g * (limit / norm): a frozen branch has norm 0, so inf * 0.
Source: PaddlePaddle/Paddle#32038, kozistr/pytorch_optimizer#431."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def clip_each(params, limit=0.5):
    for p in params:
        norm = p.grad.norm()
        scale = limit / (norm + (1e-6 if CURED else 0.0))  # FAULT
        p.grad.mul_(scale)  # FAULT


for step in range(4):
    x = torch.randn(4, 1, 4, 4)
    if step == 2:
        net[0].bias.data.fill_(-50.0)  # every unit is off: no gradient reaches the convolution
    loss = nn.functional.cross_entropy(net(x), torch.randint(2, (4,)))
    opt.zero_grad()
    loss.backward()
    clip_each(net.parameters())
    opt.step()
    print(step, loss.item())
