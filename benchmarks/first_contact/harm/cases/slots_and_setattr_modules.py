"""Modules with __slots__, __getattr__, __call__ and __setattr__ of their own, non-Module callables, forward replaced per instance, __len__ 0.

source: fangwei123456/spikingjelly PR 730; huggingface/diffusers#14135 (forward replaced)
"""
import functools
import torch
from torch import nn
from fcw import grads, rng, say, seed, sha, watch, weights

seed(312)


class Proxy(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return self.inner(x)


class Strict(nn.Linear):
    def __setattr__(self, name, value):
        if hasattr(self, "sealed") and self.sealed:
            raise AttributeError(f"sealed: {name}")
        super().__setattr__(name, value)

    def __len__(self):
        return 0

    def __bool__(self):
        return False

    def __eq__(self, other):
        return isinstance(other, Strict)

    __hash__ = nn.Module.__hash__


class OwnCall(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))

    def __call__(self, x, *more):
        return super().__call__(x * 2, *more) + 1

    def forward(self, x, *more):
        return x * self.w


class Dunder(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.calls = 0

    def __getattribute__(self, name):
        if name == "forward":
            object.__setattr__(self, "calls", self.calls + 1)
        return super().__getattribute__(name)

    def forward(self, x):
        return self.l(x).sigmoid()


a, b, c, d = Proxy(nn.Linear(8, 4)), Strict(4, 4), OwnCall(), Dunder()
b.sealed = True
model = nn.Sequential(a, b, c, d)
original = a.inner.forward
a.inner.forward = functools.partial(lambda f, x: f(x) * 1.5, original)
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    loss = model(torch.randn(3, 8)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), d.calls, sha(grads(model)), a.in_features)
say(bool(b), len(b), sorted(vars(a.inner)), sha(weights(model)), rng())
