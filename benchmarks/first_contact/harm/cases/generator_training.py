"""A training loop that is a generator with no_grad decorators, closed, thrown into, and left unfinished; StopIteration inside forward.

source: pytorch/pytorch PR 49017, pytorch/pytorch#44527, pytorch/torchtitan#1626
"""
import gc
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, watch, weights

seed(77)


class Feed(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.l, self.it = nn.Linear(8, 4), iter(range(n))

    def forward(self, x):
        next(self.it)
        return self.l(x)


def loop(model):
    opt = torch.optim.SGD(model.parameters(), 0.1)
    try:
        while True:
            loss = model(torch.randn(3, 8)).square().mean()
            got = yield loss.item().hex()
            if got:
                say("got", got)
            opt.zero_grad()
            loss.backward()
            opt.step()
    except GeneratorExit:
        say("closed", torch.is_grad_enabled())
        raise
    except ValueError as e:
        yield f"thrown {e}"
    finally:
        say("finally")


@torch.no_grad()
def evaluate(model):
    for i in range(3):
        yield model(torch.full((1, 8), float(i))).sum().item().hex(), torch.is_grad_enabled()


model = mlp()
watch(model)
g = loop(model)
say(next(g), next(g), g.send("a word"), g.throw(ValueError("x")))
g.close()
g = loop(model)
say(next(g), next(g))
e = evaluate(model)
say(next(e), torch.is_grad_enabled(), list(e))
del g
gc.collect()
feed = Feed(3)
watch(feed)
try:
    for v in loop(feed):
        say(v)
except RuntimeError as e:
    say(type(e).__name__, e, type(e.__cause__).__name__)
try:
    feed(torch.ones(1, 8))
except StopIteration as e:
    say("StopIteration", e.value)
say(list(iter(lambda: model(torch.zeros(1, 8)).shape[0], 1)), sha(weights(model)), rng())
