"""A module used many times in one forward, under two names, in two models, recursively, and a list that grows in mid-run.

source: VainF/Torch-Pruning#374, jacobgil/pytorch-grad-cam PR 183 (a hook twice on one layer)
"""
import torch
from torch import nn
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(325)


class Net(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.first = self.again = shared
        self.embed = nn.Embedding(10, 6)
        self.out = nn.Linear(6, 10, bias=False)
        self.out.weight = self.embed.weight
        self.more = nn.ModuleList()

    def forward(self, i):
        h = self.embed(i).mean(1)
        for k in range(3):
            h = self.first(h) + self.again(h) * 0.1
        for m in self.more:
            h = m(h)
        return self.out(h)


shared = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
a, b = Net(shared), Net(shared)
watch(a)
watch(b)
opt = torch.optim.SGD(list(dict.fromkeys([*a.parameters(), *b.parameters()])), 0.05)
for step in range(6):
    i = torch.randint(0, 10, (4, 3))
    loss = nn.functional.cross_entropy(a(i), i[:, 0]) + nn.functional.cross_entropy(b(i), i[:, 1]) * 0.5
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), sha(grads(a)), sha(grads(b)))
    if step == 2:
        a.more.append(nn.Linear(6, 6))
        opt.add_param_group({"params": a.more.parameters(), "lr": 0.01})
    if step == 3:
        del a.again
        a.again = nn.Identity()
say(sha(weights(a), weights(b)), rng())
