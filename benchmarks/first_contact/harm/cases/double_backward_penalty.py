"""Gradient penalty by create_graph, backward(create_graph=True), third order, retain_graph twice, is_grads_batched.

source: pytorch/pytorch#3835, pytorch/pytorch#82528
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import warnings
warnings.simplefilter("ignore")
import torch
from torch import autograd
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(28)
net = mlp(4, 8, 1)
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-3, betas=(0.0, 0.9))
for step in range(4):
    x = torch.randn(5, 4, requires_grad=True)
    out = net(x)
    (g,) = autograd.grad(out.sum(), x, create_graph=True)
    penalty = ((g.norm(2, 1) - 1) ** 2).mean()
    (gg,) = autograd.grad(penalty, x, create_graph=True, retain_graph=True)
    loss = out.mean() + 10 * penalty + gg.square().sum() * 0.01
    opt.zero_grad()
    loss.backward(retain_graph=True)
    first = sha(grads(net))
    loss.backward()
    batch = torch.eye(5)
    y = net(x)
    (jac,) = autograd.grad(y[:, 0], x, batch, is_grads_batched=True, retain_graph=True)
    (single,) = autograd.grad(y.sum(), x)
    say(loss.item().hex(), first, sha(grads(net)), sha(jac), sha(single))
    opt.step()
for step in range(2):
    net(torch.ones(2, 4)).square().sum().backward(create_graph=True)
    h = sum((p.grad**2).sum() for p in net.parameters())
    hv = autograd.grad(h, list(net.parameters()))
    say(sha(hv))
    for p in net.parameters():
        p.grad = None
say(sha(weights(net)), rng())
