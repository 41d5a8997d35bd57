"""Modules that return dicts, dataclasses, named tuples, None, generators, and tensors inside sets of objects.

source: wandb/wandb#1122
"""
import collections
import dataclasses
import types
import torch
from torch import nn
from fcw import grads, rng, say, seed, sha, watch, weights

seed(99)
Pair = collections.namedtuple("Pair", "mean spread")


@dataclasses.dataclass
class Out:
    hidden: torch.Tensor
    extra: object = None


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 6)

    def forward(self, x):
        h = self.l(x).tanh()
        return {"h": h, 3: [h * 2, None, "text"], ("k", 1): Pair(h.mean(), h.std())}


class Mid(nn.Module):
    def forward(self, d):
        return Out(d["h"] + d[3][0], types.SimpleNamespace(p=d[("k", 1)]))


class Stream(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 3)

    def forward(self, o):
        for i in range(3):
            yield self.l(o.hidden) * (i + 1)


class Silent(nn.Module):
    def forward(self, *a, **k):
        return None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mid, self.stream, self.silent = Enc(), Mid(), Stream(), Silent()

    def forward(self, *, x):
        o = self.mid(self.enc(x))
        assert self.silent(o, key={1, 2}) is None
        return sum(self.stream(o)) + o.extra.p.mean * o.extra.p.spread


net = Net()
watch(net)
opt = torch.optim.RMSprop(net.parameters(), 1e-2, centered=True, momentum=0.5)
for step in range(5):
    opt.zero_grad(set_to_none=bool(step % 2))
    loss = net(x=torch.randn(4, 6)).pow(2).mean()
    loss.backward()
    opt.step()
    say(loss.item().hex(), sha(grads(net)))
say(sha(weights(net)), rng())
