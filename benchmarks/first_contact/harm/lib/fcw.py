"""What the cases share. In a bare run nothing of the tool is imported; FC_ENTRANCE=watch makes ``watch`` open one."""

import hashlib
import os
import pickle
import random
import sys

ENTRANCE = os.environ.get("FC_ENTRANCE", "bare")


class _Nothing:
    def close(self):
        pass

    def step(self, *a, **k):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *e):
        return False


def watch(model, **kw):
    """``numscope.watch(model)`` under the entrance "watch"; else an object that does nothing."""
    if ENTRANCE != "watch":
        return _Nothing()
    import numscope

    return numscope.watch(model, **kw)


def _feed(h, x):
    import torch

    if isinstance(x, torch.Tensor):
        x = x.detach()
        if type(x) not in (torch.Tensor, torch.nn.Parameter) and hasattr(x, "to_local"):
            x = x.to_local()
        h.update(f"T{x.dtype}{tuple(x.shape) if not x.is_nested else ''}{x.layout}".encode())
        if x.is_nested:
            for part in x.unbind():
                _feed(h, part)
        elif x.layout is torch.sparse_coo:
            _feed(h, x._indices())
            _feed(h, x._values())
        elif x.layout in (torch.sparse_csr, torch.sparse_bsr):
            _feed(h, x.crow_indices())
            _feed(h, x.col_indices())
            _feed(h, x.values())
        elif x.is_quantized:
            _feed(h, x.int_repr())
        else:
            with torch._C.DisableTorchFunctionSubclass():
                x = x.resolve_conj().resolve_neg().cpu().contiguous().as_subclass(torch.Tensor)
                h.update(bytes(x.reshape(-1).view(torch.uint8).numpy().tobytes()) if x.numel() else b"-")
    elif isinstance(x, dict):
        h.update(b"{")
        for k, v in x.items():
            _feed(h, k if not isinstance(k, torch.Tensor) else "t")
            _feed(h, v)
        h.update(b"}")
    elif isinstance(x, (list, tuple)):
        h.update(b"[")
        for v in x:
            _feed(h, v)
        h.update(b"]")
    elif isinstance(x, bytes):
        h.update(x)
    elif isinstance(x, float):
        h.update(x.hex().encode())
    elif hasattr(x, "tobytes"):
        h.update(x.tobytes())
    else:
        h.update(repr(x).encode())


def sha(*things):
    """A hash of tensors' bits, of what holds them, and of plain values."""
    h = hashlib.sha256()
    for t in things:
        _feed(h, t)
    return h.hexdigest()[:16]


def rng():
    """A hash of the state of every generator: random, NumPy, torch."""
    import numpy as np
    import torch

    state = np.random.get_state()
    return sha(repr(random.getstate()), state[1], int(state[2]), torch.get_rng_state())


def grads(model):
    return [p.grad for p in model.parameters()]


def weights(model):
    return list(model.state_dict().values())


def seed(n=0):
    import numpy as np
    import torch

    random.seed(n)
    np.random.seed(n)
    torch.manual_seed(n)


def mlp(n=8, hidden=16, out=4, act=None):
    import torch
    from torch import nn

    return nn.Sequential(nn.Linear(n, hidden), act or nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, out))


def train(model, opt, steps=5, n=8, out=4, batch=6, loss=None):
    """A plain loop; the losses' hexes."""
    import torch

    said = []
    for _ in range(steps):
        x, y = torch.randn(batch, n), torch.randn(batch, out)
        opt.zero_grad()
        value = (loss or torch.nn.functional.mse_loss)(model(x), y)
        value.backward()
        opt.step()
        said.append(float(value.detach()).hex())
    return said


def say(*things):
    print(*things, flush=True)


def leave():
    """The end of a process group without a race: gloo aborts now and then where a rank closes while another still sends."""
    import time

    import torch.distributed as dist

    dist.barrier()
    time.sleep(0.5)
    dist.destroy_process_group()
