"""Tensor hooks that replace gradients on inputs, outputs, intermediate tensors and parameters, removed and re-added in mid-run.

source: pytorch/pytorch PR 107323 (order of hooks)
"""
import torch
from torch import nn
from fcw import grads, rng, say, seed, sha, watch, weights

seed(25)
ORDER = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x):
        h = self.a(x)
        h.register_hook(lambda g: ORDER.append("h1"))
        h.retain_grad()
        self.h = h.relu_()
        self.h.register_hook(lambda g: (ORDER.append("h2"), g * 2)[1])
        out = self.b(self.h)
        out.register_hook(lambda g: (ORDER.append("out"), g.clamp(-0.1, 0.1))[1])
        return out


net = Net()
watch(net)
handle = net.a.weight.register_hook(lambda g: (ORDER.append("w"), g.sign())[1])
opt = torch.optim.SGD(net.parameters(), 0.01)
for step in range(5):
    if step == 2:
        handle.remove()
    if step == 3:
        handle = net.a.weight.register_hook(lambda g: (ORDER.append("w again"), g * 3)[1])
    x = torch.randn(3, 5, requires_grad=True)
    x.register_hook(lambda g: ORDER.append("x"))
    loss = net(x).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), ORDER, sha(grads(net)), sha(x.grad))
    ORDER.clear()
say(sha(weights(net)), rng())
