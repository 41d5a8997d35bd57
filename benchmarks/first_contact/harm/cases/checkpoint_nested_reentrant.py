"""Nested checkpoints, reentrant and not, with dropout, early stop, inside save_on_cpu; the number of forwards is printed.

source: pytorch/pytorch#147565, pytorch/pytorch PR 90105, pytorch/pytorch PR 78752
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from fcw import grads, rng, say, seed, sha, watch, weights

seed(22)
COUNT = [0]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.d = nn.Linear(6, 6), nn.Dropout(0.3)

    def forward(self, x):
        COUNT[0] += 1
        return x + self.d(self.l(x).tanh())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.tail = nn.Sequential(Block(), Block(), Block())

    def pair(self, x):
        return checkpoint(self.blocks[1], checkpoint(self.blocks[0], x, use_reentrant=False), use_reentrant=False)

    def forward(self, x):
        x = checkpoint(self.pair, x, use_reentrant=False)
        x = checkpoint(self.blocks[2], x, use_reentrant=True, preserve_rng_state=True)
        with torch.autograd.graph.save_on_cpu():
            x = checkpoint(self.blocks[3], x, use_reentrant=False)
        return checkpoint_sequential(self.tail, 2, x, use_reentrant=False)


net = Net()
watch(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
for step in range(4):
    loss = net(torch.randn(3, 6, requires_grad=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), COUNT, sha(grads(net)))
say(sha(weights(net)), rng())
