"""Inventory of the interpreter before and after training: filters, hooks, handlers, limits, paths, environment, callbacks, descriptors, threads.

Source: https://github.com/NVIDIA/TransformerEngine/issues/812
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


import atexit, gc, locale, logging, resource, signal, sys, threading, time, warnings, multiprocessing as mp, asyncio, decimal, faulthandler
def inv():
    return [
        ("filters", H([str(f[:1]) + str(f[2].__name__) for f in warnings.filters if "numscope" not in str(f)])), ("showwarning", warnings.showwarning.__module__),
        ("signals", [(s.name, str(signal.getsignal(s))[:40]) for s in signal.Signals if "built-in function default_int" not in str(signal.getsignal(s)) and str(signal.getsignal(s)) not in ("Handlers.SIG_DFL", "Handlers.SIG_IGN", "None")]),
        ("int", signal.getsignal(signal.SIGINT) is signal.default_int_handler), ("argv", sys.argv), ("path0", sys.path[0] == os.getcwd()), ("paths", len(sys.path)),
        ("hooks", sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, threading.excepthook is threading.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, sys.breakpointhook is sys.__breakpointhook__),
        ("trace", sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile(), sys.get_asyncgen_hooks()[0]),
        ("limits", sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), [resource.getrlimit(getattr(resource, r)) for r in ("RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_STACK", "RLIMIT_AS")]),
        ("logging", logging.root.level, len(logging.root.handlers), logging.raiseExceptions, logging.getLogger("torch").level),
        ("gc", gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count()), ("std", type(sys.stdout).__name__, sys.stdout.line_buffering, sys.stderr is sys.__stderr__, sys.stdout is sys.__stdout__, sys.stdin is sys.__stdin__),
        ("umask", os.umask(0o22)), ("cwd", os.path.basename(os.getcwd())), ("locale", locale.setlocale(locale.LC_ALL)), ("env", sorted(k for k in os.environ if k not in ("_", "OLDPWD", "FC_WATCH"))),
        ("mp", mp.get_start_method(allow_none=True), mp.current_process().name, len(mp.active_children())), ("threads", threading.active_count(), len(os.listdir("/proc/self/task")) > 0),
        ("audit", faulthandler.is_enabled(), decimal.getcontext().prec, time.tzname), ("nice", os.getpriority(os.PRIO_PROCESS, 0) > -1, len(os.sched_getaffinity(0))),
        ("main", sorted(k for k in vars(sys.modules["__main__"]) if k.startswith("__"))), ("flags", list(sys.flags)), ("meta", [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path], len(sys.path_hooks)),
    ]
a = inv()
m = net(); W(m); print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 5), M(m))
b = inv()
for x, y in zip(a, b): print(x, "" if x == y else y)
