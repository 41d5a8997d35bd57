"""channels_last, expanded, transposed, zero-size and scalar outputs: strides, contiguity, storage sizes.

Source: https://github.com/pytorch/pytorch/pull/29669
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
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Conv2d(3, 4, 3, padding=1); self.b = nn.BatchNorm2d(4); self.l = nn.Linear(4, 2)
    def forward(self, x):
        h = self.b(self.c(x)); z = self.l(h.mean((2, 3)))
        return h, z.t(), z[:0], z.sum(), z[:, :1].expand(-1, 5), torch.empty(0), h.flip(0), z.unsqueeze(0)[..., ::2]
m = Net().to(memory_format=torch.channels_last); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3):
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last) if s != 1 else torch.randn(2, 3, 5, 5)
    outs = m(x)
    print([(tuple(o.shape), o.stride(), o.is_contiguous(), o.storage_offset(), o.untyped_storage().nbytes()) for o in outs])
    loss = sum(o.sum() for o in outs); opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex(), m.c.weight.grad.stride())
print(M(m))
