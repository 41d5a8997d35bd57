"""A checkpoint that pickles classes of __main__, a partial, an Enum and a dataclass with the model; a second process loads it bare.

source: python/cpython PR 140735, joerick/pyinstrument#109
"""
import dataclasses
import enum
import functools
import os
import pickle
import subprocess
import sys
import torch
from torch import nn
from fcw import mlp, say, seed, sha, train, watch, weights


class Mode(enum.Enum):
    A = 1


@dataclasses.dataclass
class State:
    net: object
    mode: Mode
    fn: object
    step: int = 0


def scale(x, by):
    return x * by


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.post = mlp(), functools.partial(scale, by=2)

    def forward(self, x):
        return self.post(self.body(x))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        s = torch.load("state.pt", weights_only=False)
        say(type(s).__module__, s.mode, s.fn(3), s.net(torch.ones(1, 8)).sum().item().hex(), sha(weights(s.net)))
        sys.exit()
    seed(326)
    net = Net()
    watch(net)
    opt = torch.optim.SGD(net.parameters(), 0.05)
    for i in range(2):
        say(train(net, opt, 2))
        out = net(torch.ones(1, 8))
        torch.save(State(net, Mode.A, functools.partial(scale, by=7), i), "state.pt")
        out.sum().backward()
    say(subprocess.run([sys.executable, os.path.abspath(__file__), "load"], capture_output=True, text=True).stdout.strip())
    say(pickle.loads(pickle.dumps(Mode.A)) is Mode.A, sha(weights(net)))
