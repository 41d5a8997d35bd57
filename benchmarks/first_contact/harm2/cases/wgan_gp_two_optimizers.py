"""WGAN-GP: two models, two optimizers, gradient penalty by autograd.grad(create_graph), several critic steps.

Source: https://github.com/caogang/wgan-gp/issues/21
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


torch.manual_seed(0)
g, d = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
W(g); W(d)
og, od = torch.optim.Adam(g.parameters(), 1e-3, (0.0, 0.9)), torch.optim.Adam(d.parameters(), 1e-3, (0.0, 0.9))
for s in range(4):
    for _ in range(2):
        real, fake = torch.randn(8, 2) + 1, g(torch.randn(8, 4)).detach()
        e = torch.rand(8, 1)
        mid = (e * real + (1 - e) * fake).requires_grad_()
        (gr,) = torch.autograd.grad(d(mid).sum(), mid, create_graph=True)
        loss = d(fake).mean() - d(real).mean() + 10 * (gr.norm(2, 1) - 1).square().mean()
        od.zero_grad(set_to_none=False); loss.backward(); od.step()
    for p in d.parameters():
        p.requires_grad_(False)
    lg = -d(g(torch.randn(8, 4))).mean()
    og.zero_grad(); lg.backward(); og.step()
    for p in d.parameters():
        p.requires_grad_(True)
    print(float(loss.detach()).hex(), float(lg.detach()).hex())
print(M(g), M(d), R())
