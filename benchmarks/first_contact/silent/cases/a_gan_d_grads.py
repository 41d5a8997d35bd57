"""D's gradients of the generator's loss are still there when D's own are added: D is partly trained to be fooled.

Source: https://github.com/FoundationVision/OmniTokenizer/issues/15
Truth: D's gradient before its own backward is not None
Could a tool know: yes: D's step uses gradients of a backward that another optimizer's step has used before
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


G, D = mlp(4, 2), mlp(2, 1)
g_opt, d_opt = torch.optim.Adam(G.parameters(), lr=1e-3), torch.optim.Adam(D.parameters(), lr=1e-3)
for step in range(300):
    g_opt.zero_grad()
    d_opt.zero_grad()
    fake = G(torch.randn(64, 4))
    g_loss = F.softplus(-D(fake)).mean()
    g_loss.backward()
    g_opt.step()
    if HEALTHY:
        d_opt.zero_grad()
    left = D[0].weight.grad is not None
    d_loss = F.softplus(-D(real())).mean() + F.softplus(D(fake.detach())).mean()
    d_loss.backward()
    d_opt.step()
    if step % 50 == 0:
        print(step, round(g_loss.item(), 4), round(d_loss.item(), 4))
print("end: D begins with G's gradients", left)
