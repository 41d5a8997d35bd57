"""A __torch_dispatch__ wrapper subclass (two tensors in one) as input and as a parameter; its own log of operations in forward.

Source: https://github.com/pytorch/pytorch/pull/73459
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


import torch.utils._pytree as tree
class Two(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b): return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, requires_grad=a.requires_grad)
    def __init__(self, a, b): self.a, self.b = a, b
    def __repr__(self): return "Two"
    def __tensor_flatten__(self): return ["a", "b"], None
    @staticmethod
    def __tensor_unflatten__(d, meta, size, stride): return Two(d["a"], d["b"])
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        k = kwargs or {}
        ra = func(*tree.tree_map_only(Two, lambda t: t.a, args), **tree.tree_map_only(Two, lambda t: t.a, k)); rb = func(*tree.tree_map_only(Two, lambda t: t.b, args), **tree.tree_map_only(Two, lambda t: t.b, k))
        fa, spec = tree.tree_flatten(ra); fb, _ = tree.tree_flatten(rb)
        from torch.utils._python_dispatch import return_and_correct_aliasing
        return return_and_correct_aliasing(func, args, k, tree.tree_unflatten([Two(p, q) if isinstance(p, torch.Tensor) else p for p, q in zip(fa, fb)], spec))
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)); m[2].weight = nn.Parameter(Two(torch.randn(4, 8) * 0.2, torch.randn(4, 8) * 0.2)); W(m)
for s in range(3):
    x, y = batch(s); out = m(x); loss = out.square().mean(); loss.backward(); print(type(out).__name__, loss.a.item().hex(), loss.b.item().hex())
    with torch.no_grad():
        for p in m.parameters(): p.sub_(p.grad, alpha=0.1); p.grad = None
w = m[2].weight; print(type(w).__name__, H(w.a, w.b))
