"""Monkeypatches of the script's own: builtins.print/open, torch.Tensor.__repr__/backward, torch.relu, F.linear, nn.Module.__call__; counts and results.

Source: https://github.com/pytorch/pytorch/pull/85152
"""
import hashlib, os, random, sys
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

random.seed(11)
np.random.seed(12)
torch.manual_seed(13)
torch.set_num_threads(1)


def H(*things):
    """A short hash of the bits of tensors, arrays, containers and plain values."""
    h = hashlib.sha256()

    def eat(t):
        if isinstance(t, torch.Tensor):
            t = t.detach()
            if t.layout != torch.strided:
                t = t.to_dense()
            h.update(f"{t.dtype}{tuple(t.shape)}".encode())
            t = t.resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
            h.update(t.view(torch.uint8).numpy().tobytes() if t.numel() else b"")
        elif isinstance(t, np.ndarray):
            h.update(f"{t.dtype}{t.shape}".encode() + np.ascontiguousarray(t).tobytes())
        elif isinstance(t, dict):
            for k, v in t.items():
                h.update(repr(k).encode())
                eat(v)
        elif isinstance(t, (list, tuple)):
            h.update(f"{len(t)}(".encode())
            for v in t:
                eat(v)
        else:
            h.update(repr(t).encode())

    for t in things:
        eat(t)
    return h.hexdigest()[:16]


def M(model):
    """Weights, buffers and gradients."""
    return H(dict(model.state_dict()), [p.grad for p in model.parameters()])


def R():
    """All random states."""
    return H(torch.get_rng_state(), random.getstate(), np.random.get_state())


def W(model, **options):
    """With FC_WATCH=1 the model is watched from inside the script."""
    if os.environ.get("FC_WATCH") == "1":
        import numscope

        return numscope.watch(model, **options)


def net(seed=0, i=8, h=16, o=4):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(i, h), nn.Tanh(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


def batch(step, n=6, i=8, o=4):
    g = torch.Generator().manual_seed(1000 + step)
    return torch.randn(n, i, generator=g), torch.randn(n, o, generator=g)


def train(model, opt, steps=5, first=0):
    for s in range(first, first + steps):
        x, y = batch(s)
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
    return float(loss.detach()).hex()


import builtins, collections
n = collections.Counter()
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 1))
ob, ol, oc, orr = torch.Tensor.backward, F.linear, nn.Module.__call__, torch.Tensor.__repr__
def backward(self, *a, **k): n["backward"] += 1; return ob(self, *a, **k)
def linear(*a, **k): n["linear"] += 1; return ol(*a, **k) * 1.0
def call(self, *a, **k): n["call " + type(self).__name__] += 1; return oc(self, *a, **k)
def rep(self, **k): n["repr"] += 1; return "T"
torch.Tensor.backward, F.linear, nn.Module.__call__, torch.Tensor.__repr__ = backward, linear, call, rep
opened = []; oo = builtins.open
def myopen(*a, **k): opened.append(str(a[0])); return oo(*a, **k)
builtins.open = myopen
print(train(m, opt, 3), sorted(n.items()), [f for f in opened if "/proc" not in f and "site-packages" not in f], torch.ones(1))
builtins.open = oo; print(torch.Tensor.backward is backward, F.linear is linear, nn.Module.__call__ is call)
torch.Tensor.backward, F.linear, nn.Module.__call__, torch.Tensor.__repr__ = ob, ol, oc, orr
print(train(m, opt, 2), sorted(n.items()), M(m), torch.ones(1))
