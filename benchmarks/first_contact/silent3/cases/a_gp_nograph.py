"""WGAN-GP whose gradient penalty is computed without create_graph=True: its value is in the loss, its gradient is not.
Source: https://github.com/igul222/improved_wgan_training/issues/18
Truth: the penalty term does not require grad, and the critic's gradient norm leaves 1.
Could a tool know: partly: autograd.grad's result without a graph is used in a loss that is differentiated.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
G = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
C = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
og = torch.optim.Adam(G.parameters(), lr=5e-4, betas=(0.0, 0.9))
oc = torch.optim.Adam(C.parameters(), lr=5e-4, betas=(0.0, 0.9))


def penalty(real, fake):
    a = torch.rand(real.shape[0], 1)
    mix = (a * real + (1 - a) * fake).requires_grad_(True)
    out = C(mix)
    g = torch.autograd.grad(out, mix, torch.ones_like(out), create_graph=HEALTHY, retain_graph=True)[0]
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


for step in range(150):
    for _ in range(3):
        t = torch.rand(64) * 6.283
        real = torch.stack([t.cos(), t.sin()], 1)
        fake = G(torch.randn(64, 6)).detach()
        gp = penalty(real, fake)
        lc = C(fake).mean() - C(real).mean() + 10 * gp
        oc.zero_grad()
        lc.backward()
        oc.step()
    lg = -C(G(torch.randn(64, 6))).mean()
    og.zero_grad()
    lg.backward()
    og.step()
print(f"critic {lc.item():.3f} penalty {gp.item():.3f} has gradient {gp.requires_grad}")
