"""In-place operations on module outputs, inputs, views of them; version counters and the errors of saved tensors that changed.

Source: https://github.com/pytorch/pytorch/pull/3384
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


m = net(); W(m)
x, y = batch(0)
h = m[0](x); print(h._version); h.mul_(2); print(h._version, h.is_leaf)
h2 = h[:, :4]; h2.add_(1); print(h._version, h2._version, type(h2.grad_fn).__name__, type(h.grad_fn).__name__, h2._base is h)
out = m[4](m[3](m[2](m[1](h)).add_(0.1))); out[0].zero_(); out.relu_()
out.sum().backward(); print(M(m))
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 8); self.e = nn.Identity()
    def forward(self, x):
        x[:, 1].fill_(3); a = self.l(x); b = self.e(a); assert b is a; b[:, 0] = 0; return b
m = Net(); W(m); xx = x.clone(); o = m(xx); v = o._version; o += 1; print(v, o._version, H(xx), xx._version)
o.sum().backward(); print(M(m))
t = m.l(x); e = t.exp(); e.mul_(2)
try:
    e.sum().backward()
except RuntimeError as err:
    print(str(err).split(":")[0][:70])
a, b = m(x.clone()).unbind(0)[:2]
try:
    a.add_(1)
except RuntimeError as err:
    print(str(err)[:60])
