"""WGAN-GP: sqrt(sum(grad^2)) at a gradient of exactly zero (all ReLUs of the critic are off), in the double backward.
Source: keras-team/keras-io#910, pytorch/pytorch#2534, tdeboissiere/DeepLearningImplementations#68."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
gen = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
c_opt = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
g_opt = torch.optim.Adam(gen.parameters(), lr=1e-4, betas=(0.0, 0.9))


def penalty(real, fake):
    mix = torch.rand(len(real), 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    grads = torch.autograd.grad(critic(x).sum(), x, create_graph=True)[0]
    square = grads.pow(2).sum(1)
    if CURED:
        square = square + 1e-12
    slopes = torch.sqrt(square)  # FAULT
    return ((slopes - 1) ** 2).mean()


for step in range(5):
    real, fake = torch.randn(8, 2) + 2, gen(torch.randn(8, 3)).detach()
    if step == 3:
        critic[0].bias.data.fill_(-100.0)  # dead units
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
    c_opt.zero_grad()
    loss.backward()
    c_opt.step()
    g_loss = -critic(gen(torch.randn(8, 3))).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    print(step, loss.item(), g_loss.item())
