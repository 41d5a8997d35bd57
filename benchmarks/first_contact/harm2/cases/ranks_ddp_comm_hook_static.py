"""DDP with a communication hook of the script's, find_unused_parameters, static_graph with checkpointing, ZeroRedundancyOptimizer.

Source: https://github.com/pytorch/pytorch/pull/110903
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


import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils.checkpoint import checkpoint
dist.init_process_group("gloo"); r = dist.get_rank(); f = open(f"r{r}.txt", "w")
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4); self.pick = 0; self.ck = False
    def forward(self, x): h = checkpoint(self.a, x, use_reentrant=False) if self.ck else self.a(x); return (self.b if self.pick == 0 else self.c)(torch.relu(h))
n = []
def hook(state, bucket): n.append(bucket.buffer().numel()); return dist.all_reduce(bucket.buffer() / 2, async_op=True).get_future().then(lambda fu: fu.value()[0] if isinstance(fu.value(), (list, tuple)) else fu.value())
torch.manual_seed(0); m = Net(); W(m); d = DDP(m, find_unused_parameters=True); d.register_comm_hook(None, hook); opt = ZeroRedundancyOptimizer(d.parameters(), torch.optim.Adam, lr=1e-2)
for s in range(4): m.pick = s % 2; print(train(d, opt, 1, 10 * r + s), file=f)
k = Net(); k.ck = True; W(k); e = DDP(k, static_graph=True, find_unused_parameters=True); print(train(e, torch.optim.SGD(e.parameters(), 0.1), 3, 10 * r), M(m), M(k), n, file=f); f.close(); dist.destroy_process_group()
