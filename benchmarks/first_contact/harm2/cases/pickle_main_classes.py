"""Objects of __main__ pickled by pickle, dill, cloudpickle and torch.save in training, read again by a bare child process.

Source: https://github.com/microsoft/ptvsd/issues/2108
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


import pickle, subprocess, dill, cloudpickle
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(4, 2); self.history = []
    def forward(self, x): self.history.append(len(self.history)); return self.l(x)
if __name__ == "__main__":
    torch.manual_seed(0); m = Net(); W(m)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for s in range(3):
        loss = m(batch(s, i=4)[0]).square().mean(); opt.zero_grad(); loss.backward()
        if s == 1:
            torch.save(m, "mid.pt"); pickle.dump(m, open("mid.pkl", "wb")); open("mid.cp", "wb").write(cloudpickle.dumps(m.state_dict()))
            print(len(dill.dumps(m.forward.__func__.__name__)), Net.__module__, Net.__qualname__)
        opt.step()
    torch.save({"model": m, "opt": opt.state_dict(), "rng": torch.get_rng_state()}, "end.pt")
    q = torch.load("end.pt", weights_only=False)["model"]; print(type(q) is Net, q.history, M(q) == M(m), sorted(vars(q)))
    n = pickle.load(open("mid.pkl", "rb")); print(M(n), len(n._forward_hooks), len(n._forward_pre_hooks), [(f, os.path.getsize(f)) for f in ("mid.pkl", "mid.cp")]); os.remove("mid.pkl"); os.remove("mid.cp")
    child = "import sys, torch; sys.argv=['x']\nclass Net(torch.nn.Module): pass\nimport __main__\nm=torch.load('mid.pt',weights_only=False)\nprint(sorted(vars(m)), 'numscope' in sys.modules, type(m).__module__)"
    print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
