"""Own generators (torch, numpy default_rng, SeedSequence, random.Random), fork_rng, states saved and restored in mid-training.

Source: https://app.semanticdiff.com/gh/strisunshinewentingwang/pytorch/commit/aec83ff45ebd2cb3d4890cc97bffb1f367386392
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


random.seed(1); np.random.seed(2)
m = nn.Sequential(net(3), nn.Dropout(0.4)); W(m)
g, r, n = torch.Generator().manual_seed(4), random.Random(5), np.random.default_rng(6)
opt = torch.optim.SGD(m.parameters(), 0.1)
saved = None
for s in range(6):
    x = torch.randn(6, 8, generator=g) + n.normal() + r.random() + random.random() + np.random.rand()
    loss = m(x).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    with torch.random.fork_rng():
        torch.manual_seed(s); torch.rand(3)
    if s == 2: saved = (torch.get_rng_state(), g.get_state(), n.bit_generator.state)
    if s == 4: torch.set_rng_state(saved[0]); g.set_state(saved[1]); n.bit_generator.state = saved[2]
    print(s, float(loss.detach()).hex(), R(), H(g.get_state()), H(str(n.bit_generator.state)), H(r.getstate()))
print(M(m), torch.initial_seed(), g.initial_seed())
