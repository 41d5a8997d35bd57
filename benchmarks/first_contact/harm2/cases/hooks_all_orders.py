"""Order of all hooks that a script can set (module, global, tensor, node, multi-grad, full backward, post-accumulate), with changes that they make.

Source: https://github.com/pytorch/pytorch/pull/107063
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


log = []
m = net(); W(m)
reg = torch.nn.modules.module
hs = [reg.register_module_forward_pre_hook(lambda mod, a: log.append("gpre " + type(mod).__name__)),
      reg.register_module_forward_hook(lambda mod, a, o: log.append("gfwd " + type(mod).__name__)),
      reg.register_module_full_backward_hook(lambda mod, gi, go: log.append("gbwd " + type(mod).__name__))]
m[0].register_forward_pre_hook(lambda mod, a, k: (log.append("pre kw"), (a, k))[1], with_kwargs=True)
m[0].register_forward_hook(lambda mod, a, o: log.append("fwd 1"))
m[0].register_forward_hook(lambda mod, a, o: (log.append("fwd 2"), o * 1.5)[1], prepend=True)
m[2].register_forward_hook(lambda mod, a, o: log.append("always"), always_call=True)
m[2].register_full_backward_pre_hook(lambda mod, go: log.append("bwd pre"))
m[2].register_full_backward_hook(lambda mod, gi, go: (log.append(f"bwd {len(gi)} {len(go)}"), (gi[0] * 2,))[1])
m[4].weight.register_hook(lambda g: (log.append("w"), g * 0.5)[1])
m[4].weight.register_post_accumulate_grad_hook(lambda p: log.append("post w"))
x, y = batch(0); x.requires_grad_()
out = m(x); out.register_hook(lambda g: log.append("out")); out.retain_grad()
out.grad_fn.register_prehook(lambda g: log.append("node pre")); out.grad_fn.register_hook(lambda gi, go: log.append("node"))
torch.autograd.graph.register_multi_grad_hook([m[0].weight, m[4].bias], lambda gs: log.append("multi"))
F.mse_loss(out, y).backward()
print("\n".join(log)); print(M(m), H(x.grad, out.grad))
for h in hs: h.remove()
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2), len(log), M(m))
