"""The generator's step gives D the detached fake: its adversarial loss does not reach it, only the L1 loss does.

Source: https://github.com/nikhilsinghmus/image2reverb/issues/37
Truth: the generator's gradient from the adversarial loss alone is None
Could a tool know: partly: backward of the generator's loss gives D gradients that no step of D uses, and G none through D
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, o))


def real(n=64):
    angle = torch.rand(n) * 6.283
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


G, D = mlp(6, 2), mlp(2, 1)
g_opt, d_opt = torch.optim.Adam(G.parameters(), lr=1e-3), torch.optim.Adam(D.parameters(), lr=1e-3)
for step in range(250):
    target = real()
    cond = torch.cat([target + 0.3 * torch.randn(64, 2), torch.randn(64, 4)], 1)
    fake = G(cond)
    g_adv = F.mse_loss(D(fake if HEALTHY else fake.detach()), torch.ones(64, 1))
    g_loss = g_adv + 5 * F.l1_loss(fake, target)
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    d_loss = F.mse_loss(D(target), torch.ones(64, 1)) + F.mse_loss(D(fake.detach()), torch.zeros(64, 1))
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    if step % 50 == 0:
        print(step, round(g_loss.item(), 4), round(d_loss.item(), 4))
fake = G(cond)
adv = F.mse_loss(D(fake if HEALTHY else fake.detach()), torch.ones(64, 1))
print("end: G's gradient from D is there", torch.autograd.grad(adv, G[0].weight, allow_unused=True)[0] is not None)
