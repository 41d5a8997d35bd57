"""__del__ of modules, weakref.finalize of models and tensors, atexit functions: when and in which order they run.

Source: https://github.com/mosaicml/composer/pull/1000
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


import atexit, gc, weakref
log = []
class Net(nn.Module):
    def __init__(self, n): super().__init__(); self.n = n; self.l = nn.Linear(8, 4)
    def forward(self, x): return self.l(x)
    def __del__(self): print("del", self.n)
for n in range(3):
    torch.manual_seed(n); m = Net(n); W(m); weakref.finalize(m, print, "finalize", n)
    print(n, train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
m = None; gc.collect(); print("collected")
keep = Net("kept"); W(keep); train(keep, torch.optim.SGD(keep.parameters(), 0.1), 2)
f = weakref.finalize(keep.l, print, "finalize layer"); f.atexit = True
atexit.register(print, "atexit 1"); atexit.register(lambda: print("atexit 2", train(keep, torch.optim.SGD(keep.parameters(), 0.1), 1)))
print("end", f.alive)
