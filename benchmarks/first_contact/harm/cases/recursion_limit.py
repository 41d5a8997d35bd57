"""A recursive model just below the recursion limit, and one that passes it: the depth at which Python gives up is the script's matter.

source: wandb/wandb#349
truth: 150 nested module calls within the limit train in both; the RecursionError of an endless one is caught and named in both
"""
import sys
import torch
from torch import nn
from fcw import rng, say, seed, sha, watch, weights

seed(48)


class Nest(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.inner = Nest(depth - 1) if depth else None

    def forward(self, x):
        x = x + 0.1 * self.l(x).tanh()
        return self.inner(x) if self.inner is not None else x


class Endless(nn.Module):
    def forward(self, x):
        return self(x + 1)


sys.setrecursionlimit(3000)
net = Nest(150)
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = net(torch.randn(2, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex())
endless = Endless()
watch(endless)
for i in range(2):
    try:
        endless(torch.zeros(1))
    except RecursionError as e:
        say(type(e).__name__)
    say(sys.getrecursionlimit(), net(torch.ones(1, 4)).sum().item().hex())
say(sha(weights(net)), rng())
