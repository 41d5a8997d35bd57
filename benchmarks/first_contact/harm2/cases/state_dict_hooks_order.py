"""State dict hooks of all kinds, extra state, strict=False, assign=True, buffers that aren't persistent: order and keys.

Source: https://github.com/pytorch/pytorch/issues/76434
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
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(8, 4); self.register_buffer("t", torch.zeros(1), persistent=False); self.steps = 0
        self.register_state_dict_pre_hook(lambda m, p, k: log.append("pre " + p)); self.register_state_dict_post_hook(lambda m, sd, p, meta: sd.update({p + "more": torch.ones(1)}))
        self.register_load_state_dict_pre_hook(lambda m, sd, p, *a: sd.pop(p + "more", None)); self.register_load_state_dict_post_hook(lambda m, inc: log.append(str(inc)))
    def get_extra_state(self): log.append("get"); return {"steps": self.steps}
    def set_extra_state(self, s): log.append("set"); self.steps = s["steps"]
    def forward(self, x): self.steps += 1; self.t += 1; return self.l(x)
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 3))
sd = m.state_dict(); print(list(sd), sd._metadata, m.steps); torch.save(sd, "sd.pt")
k = Net(); W(k); print(k.load_state_dict(torch.load("sd.pt", weights_only=False)), k.steps, log); print(train(k, torch.optim.SGD(k.parameters(), 0.1), 2), H(k.t))
print(k.load_state_dict({"l.weight": torch.ones(4, 8)}, strict=False, assign=True), k.l.weight.sum(), train(k, torch.optim.SGD(k.parameters(), 0.1), 1), M(m))
