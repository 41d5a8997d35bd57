"""Tensors and modules with weakref.finalize and __del__ that print: what dies in which line of the script.

source: HEmile/storchastic#26
"""
import gc
import weakref
import torch
from torch import nn
from fcw import say, seed, train, watch

seed(34)
gc.disable()


class Loud(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.l = name, nn.Linear(8, 4)

    def forward(self, x):
        return self.l(x)

    def __del__(self):
        say("  gone:", self.name)


model = Loud("first")
scope = watch(model)
weakref.finalize(model.l.weight, say, "  weight of first finalized")
opt = torch.optim.SGD(model.parameters(), 0.1)
train(model, opt, 3)
say("closing")
scope.close()
say("collect")
gc.collect()
say("drop optimizer")
del opt, scope
gc.collect()
say("drop model")
del model
gc.collect()
say("second")
model = Loud("second")
for i in range(2):
    model(torch.ones(1, 8))
model = None
gc.collect()
say("end")
