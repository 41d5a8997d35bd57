"""Custom Functions with mark_dirty, mark_non_differentiable, once_differentiable, set_materialize_grads(False), needs_input_grad, non-tensor arguments.

Source: https://github.com/pytorch/pytorch/issues/58369
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


from torch.autograd.function import once_differentiable
log = []
class A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, mode):
        ctx.set_materialize_grads(False); ctx.save_for_backward(x, w); ctx.mode = mode
        idx = (x > 0).nonzero(); ctx.mark_non_differentiable(idx)
        return x * w, x + w, idx
    @staticmethod
    @once_differentiable
    def backward(ctx, g1, g2, g3):
        log.append((g1 is None, g2 is None, g3 is None, ctx.needs_input_grad, ctx.mode))
        x, w = ctx.saved_tensors
        return (g1 * w if g1 is not None else None), ((g1 * x).sum(0) if g1 is not None else None), None
class Inplace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x); return x.mul_(2)
    @staticmethod
    def backward(ctx, g): return g * 2
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.w = nn.Parameter(torch.linspace(0.5, 1.5, 8)); self.l = nn.Linear(8, 4)
    def forward(self, x):
        a, b, i = A.apply(x, self.w, "m"); y = Inplace.apply(a.clone()); return self.l(y), b, i
torch.manual_seed(0); m = Net(); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(4):
    x = batch(s)[0].requires_grad_(s % 2 == 0)
    y, b, i = m(x)
    print(b.requires_grad, i.requires_grad, i.shape, type(y.grad_fn).__name__)
    opt.zero_grad(); y.square().mean().backward(); opt.step()
print(log, M(m))
