"""A mixture of experts with top-k routing, experts that get no token, an auxiliary loss, noise in the gate.

Source: arXiv:1701.06538 (noisy top-k gating)
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


class MoE(nn.Module):
    def __init__(self, d=8, n=4):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 16), nn.GELU(), nn.Linear(16, d)) for _ in range(n))
        self.register_buffer("load", torch.zeros(n))
    def forward(self, x):
        logits = self.gate(x) + torch.randn(len(x), 4) * 0.1
        w, idx = logits.softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for e, ex in enumerate(self.experts):
            rows, k = (idx == e).nonzero(as_tuple=True)
            self.load[e] += len(rows)
            if e == 3 and len(rows) < 3:
                continue
            out.index_add_(0, rows, ex(x[rows]) * w[rows, k, None])
        return out, logits.softmax(-1).mean(0).square().sum()
torch.manual_seed(0)
m = MoE(); W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for s in range(6):
    x = torch.randn(12 if s != 3 else 1, 8)
    y, aux = m(x)
    loss = (y - x).square().mean() + 0.01 * aux
    opt.zero_grad(); loss.backward(); opt.step()
    print(float(loss.detach()).hex(), m.load.tolist())
print(M(m), R())
