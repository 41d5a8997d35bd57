"""Optimizers of the script's own: __eq__ without hash, __slots__, step that returns a tensor, one that is no torch Optimizer at all.

source: fairscale#236, learning-at-home/hivemind PR 413
"""
import torch
from torch.optim import Optimizer
from fcw import grads, mlp, rng, say, seed, sha, train, watch, weights

seed(41)


class Same(torch.optim.SGD):
    def __eq__(self, other):
        return True

    __hash__ = None

    def __bool__(self):
        raise RuntimeError("no truth of an optimizer")

    def __len__(self):
        return 0


class Slotted:
    __slots__ = ("params", "lr")

    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self):
        with torch.no_grad():
            for p in self.params:
                p -= self.lr * p.grad


class Momentum(Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def __setattr__(self, name, value):
        if name not in ("defaults", "param_groups", "state") and not name.startswith("_") and name != "step":
            raise AttributeError(name)
        super().__setattr__(name, value)

    def step(self, closure=None, extra=1):
        total = torch.zeros(())
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    m = self.state[p].setdefault("m", torch.zeros_like(p))
                    m.mul_(0.9).add_(p.grad)
                    p.data.add_(m, alpha=-g["lr"])
                    total += m.norm()
        return total


class Wrapper(Optimizer):
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.inner.step(closure)


for make in (Same, Slotted, Momentum, lambda p, lr: Wrapper(torch.optim.SGD(p, lr))):
    model = mlp()
    watch(model)
    opt = make(model.parameters(), 0.05)
    say(train(model, opt, 4), type(opt).__name__, sha(weights(model), grads(model)))
model = mlp()
watch(model)
opt = Momentum(model.parameters(), 0.05)
model(torch.ones(1, 8)).sum().backward()
say(float(opt.step(extra=2)).hex(), rng())
