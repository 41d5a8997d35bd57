"""A RealNVP flow: masks as buffers, log determinants, inverse, sampling; also double precision.

Source: arXiv:1605.08803 (RealNVP)
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


class Coupling(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4), nn.Tanh())
        self.t = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))
    def forward(self, x):
        h = x * self.mask
        s, t = self.s(h) * (1 - self.mask), self.t(h) * (1 - self.mask)
        return h + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)
    def inverse(self, y):
        h = y * self.mask
        s, t = self.s(h) * (1 - self.mask), self.t(h) * (1 - self.mask)
        return h + (1 - self.mask) * ((y - t) * (-s).exp())
class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        a = torch.tensor([1.0, 0, 1, 0])
        self.c = nn.ModuleList([Coupling(a), Coupling(1 - a), Coupling(a)])
    def forward(self, x):
        ld = 0
        for c in self.c:
            x, l = c(x)
            ld = ld + l
        return torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(-1) + ld
torch.manual_seed(0)
for dtype in (torch.float32, torch.float64):
    m = Flow().to(dtype); W(m)
    opt = torch.optim.NAdam(m.parameters(), 1e-2)
    for s in range(4):
        loss = -m(torch.randn(16, 4, dtype=dtype)).mean()
        opt.zero_grad(); loss.backward(); opt.step()
        print(float(loss.detach()).hex())
    z = torch.randn(3, 4, dtype=dtype)
    with torch.no_grad():
        for c in reversed(m.c):
            z = c.inverse(z)
    print(H(z), M(m), R())
