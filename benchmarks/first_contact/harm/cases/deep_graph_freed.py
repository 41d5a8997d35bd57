"""Graphs of 60,000 nodes built in a module and outside, freed without a backward, and one walked back: a stack that overflows ends it.

source: pytorch/pytorch#5534, pytorch/pytorch#109948
meta: {"limit": 120}
"""
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(47)


class Deep(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w, self.n = nn.Parameter(torch.full((3,), 0.5)), n

    def forward(self, x):
        y = self.w.clone()
        for i in range(self.n):
            y = y + y * 1e-6
        return y * x


model = mlp()
deep = Deep(30000)
watch(model)
watch(deep)
opt = torch.optim.SGD([*model.parameters(), *deep.parameters()], 0.01)
for j in range(2):
    y = deep(torch.ones(3))
    say("freed", sha(y))
    del y
    z = model(torch.ones(1, 8)).sum()
    for i in range(30000):
        z = z + z * 1e-6
    say("outside", sha(z))
    z = None
loss = deep(torch.ones(3)).sum()
opt.zero_grad()
loss.backward()
opt.step()
say(loss.item().hex(), sha(deep.w), train(model, opt, 2), sha(weights(model)), rng())
