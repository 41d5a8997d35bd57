"""A small ViT of timm with ModelEmaV3, mixup-like draws of numpy and stochastic depth; weights of both.

Source: https://github.com/lucidrains/ema-pytorch/issues/6
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


import timm
from timm.utils import ModelEmaV3
random.seed(0); np.random.seed(0); torch.manual_seed(0)
m = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=2, num_classes=5, drop_path_rate=0.2)
W(m)
ema = ModelEmaV3(m, decay=0.9)
opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for s in range(4):
    x = torch.randn(4, 3, 32, 32)
    lam = np.random.beta(0.4, 0.4)
    x = lam * x + (1 - lam) * x.flip(0)
    y = torch.tensor([random.randrange(5) for _ in range(4)])
    loss = F.cross_entropy(m(x), y, label_smoothing=0.1)
    opt.zero_grad(); loss.backward(); opt.step(); ema.update(m)
    print(float(loss.detach()).hex())
print(M(m), M(ema.module), R())
