"""Bernoulli likelihood in bfloat16: 0.9985 rounds to 1, and log(1 - p) is -inf.
Source: Own: bfloat16 has 8 bits of mantissa."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).bfloat16()
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(4):
    x = torch.randn(8, 4).bfloat16()
    z = net(x).squeeze(1) + (6.6 if step == 2 else 0.0)
    y = (torch.arange(8) % 2).bfloat16()
    p = torch.sigmoid(z.float() if CURED else z)
    loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
