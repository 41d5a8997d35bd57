"""Weak references to a step's activations, gradients and loss: dead when the script lets go, without a collection.

source: pytorch/pytorch#17568, pytorch/pytorch#12863
"""
import gc
import weakref
import torch
from torch import nn
from fcw import say, seed, watch

seed(33)
REFS = []


class Keep(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x):
        h = self.l(x)
        REFS.append(("hidden", weakref.ref(h)))
        return torch.tanh(h)


model = nn.Sequential(Keep(), Keep(), nn.Linear(8, 2))
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
gc.collect()
gc.disable()
for step in range(4):
    REFS.clear()
    x = torch.randn(4, 8)
    out = model(x)
    loss = out.square().mean()
    REFS += [("x", weakref.ref(x)), ("out", weakref.ref(out)), ("loss", weakref.ref(loss))]
    del x
    after_forward = [(n, r() is None) for n, r in REFS]
    loss.backward()
    opt.step()
    opt.zero_grad()
    del out, loss
    say(after_forward, [(n, r() is None) for n, r in REFS])
with torch.no_grad():
    out = model(torch.ones(1, 8))
    r = weakref.ref(out)
    del out
    say("evaluation's result is dead", r() is None)
