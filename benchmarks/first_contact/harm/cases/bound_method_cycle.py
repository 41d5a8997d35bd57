"""A model whose bound method is its attribute (a reference cycle with a buffer): it must go at gc.collect() and not stay longer.

source: pytorch/pytorch#128211
"""
import gc
import weakref
import torch
from torch import nn
from fcw import say, seed, sha, train, watch

seed(30)
gc.collect()
gc.disable()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 4)
        self.register_buffer("b", torch.zeros(1000))
        self.which = self.call

    def call(self, x):
        return self.l(x) + self.b.sum()

    def forward(self, x):
        return self.which(x)


def run():
    net = Net()
    scope = watch(net)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    said = train(net, opt, 3)
    scope.close()
    return weakref.ref(net), weakref.ref(net.l.weight), weakref.ref(opt), said


for i in range(3):
    *refs, said = run()
    gc.collect()
    say([r() is None for r in refs], said)
