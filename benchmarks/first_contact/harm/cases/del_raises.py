"""__del__ methods that raise, that train, that resurrect; sys.unraisablehook of the script's; warnings from finalizers.

source: HEmile/storchastic#26; python docs sys.unraisablehook
"""
import gc
import sys
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(79)
KEPT = []
sys.unraisablehook = lambda u: say("unraisable", type(u.exc_value).__name__, u.exc_value)


class Raises:
    def __del__(self):
        raise ValueError("in __del__")


class Trains:
    def __init__(self, m):
        self.m = m

    def __del__(self):
        say("del trains", train(self.m, torch.optim.SGD(self.m.parameters(), 0.1), 1))


class Lazarus(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 4)

    def forward(self, x):
        Raises()
        return self.l(x)

    def __del__(self):
        if not KEPT:
            KEPT.append(self)


model, other = Lazarus(), mlp()
watch(model)
watch(other)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2))
t = Trains(other)
del t
del opt, model
gc.collect()
say("kept", len(KEPT))
if KEPT:
    say(train(KEPT[0], torch.optim.SGD(KEPT[0].parameters(), 0.1), 2))
say(sys.unraisablehook.__name__, sha(weights(other)), rng())
