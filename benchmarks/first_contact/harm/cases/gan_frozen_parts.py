"""A GAN with spectral norm, discriminator frozen by requires_grad, n_critic, detached fakes, gradients wrt inputs only, weights clipped.

source: eriklindernoren/PyTorch-GAN wgan; pytorch/pytorch#3835
"""
import torch
from torch import nn
from torch.nn.utils import parametrizations
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(318)
g, d = mlp(4, 8, 6), nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 8)), nn.LeakyReLU(0.2, True), nn.Linear(8, 1))
watch(g)
watch(d)
og, od = torch.optim.Adam(g.parameters(), 1e-3, (0.5, 0.9)), torch.optim.RMSprop(d.parameters(), 1e-3)
for step in range(6):
    d.requires_grad_(True)
    for k in range(2):
        od.zero_grad()
        fake = g(torch.randn(5, 4)).detach()
        real = torch.randn(5, 6).requires_grad_()
        loss = d(fake).mean() - d(real).mean()
        (gx,) = torch.autograd.grad(d(real).sum(), real, create_graph=True)
        (loss + gx.square().sum(1).mean()).backward()
        od.step()
        for p in d[2].parameters():
            p.data.clamp_(-0.1, 0.1)
    d.requires_grad_(False)
    og.zero_grad()
    lg = -d(g(torch.randn(5, 4))).mean()
    lg.backward()
    og.step()
    say(loss.item().hex(), lg.item().hex(), sha(grads(g)), [p.grad is None for p in d.parameters()])
torch.save({"g": g.state_dict(), "d": d.state_dict(), "og": og.state_dict(), "od": od.state_dict()}, "gan.pt")
say(sha(weights(g), weights(d)), rng())
