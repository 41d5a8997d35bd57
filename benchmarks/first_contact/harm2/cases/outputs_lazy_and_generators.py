"""Modules that return generators, iterators, lazy dicts that count reads, dataclasses, namedtuples, custom objects, None; arguments that are iterators.

Source: invented, after transformers' ModelOutput
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


import collections
from dataclasses import dataclass
log = []
class Lazy(dict):
    def __getitem__(self, k): log.append("get"); return dict.__getitem__(self, k)
    def items(self): log.append("items"); return dict.items(self)
    def values(self): log.append("values"); return dict.values(self)
    def __iter__(self): log.append("iter"); return dict.__iter__(self)
class Seq(collections.abc.Sequence):
    def __init__(self, v): self.v = v
    def __len__(self): log.append("slen"); return len(self.v)
    def __getitem__(self, i): log.append("sget"); return self.v[i]
@dataclass
class Out:
    y: torch.Tensor
    extra: object = None
P = collections.namedtuple("P", "a b")
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.kind = 0
    def forward(self, it, **kw):
        y = self.l(next(it)); k = self.kind
        if k == 0: return (log.append("made") or y * i for i in (1, 2))
        if k == 1: return iter([y, y * 2])
        if k == 2: return Lazy(y=y, n=None)
        if k == 3: return Seq([y])
        if k == 4: return Out(y, {1: y.sum()})
        if k == 5: return P(y, [y.sum(), "text", {"deep": (y,)}])
        if k == 6: return map(lambda t: log.append("map") or t, [y])
        self.last = y; return None
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for k in list(range(8)) * 2:
    m.kind = k; it = iter([batch(k)[0], "next"]); o = m(it, flag=object()); log.append("|")
    y = list(o)[-1] if k in (0, 1, 6) else o["y"] if k == 2 else o[0] if k == 3 else o.y if k == 4 else o.a if k == 5 else m.last
    loss = y.square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(k, type(o).__name__, next(it), float(loss.detach()).hex())
print(log, M(m))
