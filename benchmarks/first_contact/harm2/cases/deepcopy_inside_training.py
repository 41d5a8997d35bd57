"""copy.deepcopy and copy.copy of models, optimizers and outputs at many moments, also inside forward and hooks; copies are trained on their own.

Source: https://github.com/pytorch/pytorch/issues/54580
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


import copy
copies = []
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.take = False
    def forward(self, x):
        y = self.l(x)
        if self.take: self.take = False; copies.append(copy.deepcopy(self))
        return y
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.Adam(m.parameters(), 1e-2); print(train(m, opt, 1))
copies.append(copy.deepcopy(m)); m.take = True; train(m, opt, 1)
h = m.l.register_forward_hook(lambda mod, a, o: copies.append(copy.deepcopy(mod)) if len(copies) < 4 else None); train(m, opt, 2); h.remove()
hb = m.l.weight.register_hook(lambda g: copies.append(copy.copy(m)) if len(copies) < 5 else None); train(m, opt, 1); hb.remove()
mm, oo = copy.deepcopy((m, opt)); copies.append(mm); print(train(mm, oo, 3), M(mm), oo.param_groups[0]["params"][0] is mm.l.weight, M(m))
for c in copies: print(type(c).__name__, M(c), sorted(vars(c)) == sorted(vars(nn.Linear(1, 1)) if isinstance(c, nn.Linear) else vars(m)), train(c, torch.optim.SGD(c.parameters(), 0.1), 2) if c is not m else 0)
try:
    copy.deepcopy(m(batch(0)[0]))
except RuntimeError as e: print(str(e)[:40])
print(M(m), train(m, opt, 2))
