"""A GAN in which the discriminator's gradients are cleared only after its own step: the generator's backward leaves its gradients
in the discriminator, which adds them to its own.
Source: https://github.com/Lightning-AI/pytorch-lightning/issues/591
Truth: the discriminator's gradient before its own backward is not zero.
Could a tool know: yes: parameters of an optimizer hold gradients of another loss when their own backward begins, never used apart.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
left = 0.0
for step in range(200):
    t = torch.rand(64) * 6.283
    real = torch.stack([t.cos(), t.sin()], 1) + 0.05 * torch.randn(64, 2)
    # generator
    fake = G(torch.randn(64, 8))
    loss_g = bce(D(fake), ones)
    loss_g.backward()
    opt_g.step()
    opt_g.zero_grad()
    # discriminator
    if HEALTHY:
        opt_d.zero_grad()
    left += 0 if D[0].weight.grad is None else D[0].weight.grad.norm().item()
    loss_d = bce(D(real), ones) + bce(D(G(torch.randn(64, 8)).detach()), zeros)
    loss_d.backward()
    opt_d.step()
    opt_d.zero_grad()
print(f"D {loss_d.item():.3f} G {loss_g.item():.3f} left-over gradient, summed: {left:.3f}")
