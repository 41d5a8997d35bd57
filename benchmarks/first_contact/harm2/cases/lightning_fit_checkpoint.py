"""A Lightning Trainer: fit, validation, CSV log, checkpoint; metrics, callbacks' order, files but for times.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/4188 (order of backward and step)
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


import warnings, logging
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L
class Mod(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.n = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    def training_step(self, b, i):
        loss = F.mse_loss(self.n(b[0]), b[1])
        self.log("a", loss)
        return loss
    def validation_step(self, b, i):
        self.log("v", F.mse_loss(self.n(b[0]), b[1]))
    def configure_optimizers(self):
        o = torch.optim.Adam(self.parameters(), 1e-2)
        return [o], [torch.optim.lr_scheduler.StepLR(o, 1)]
class Order(L.Callback):
    def on_before_backward(self, *a): print("before_backward", end=" ")
    def on_after_backward(self, *a): print("after_backward", end=" ")
    def on_before_optimizer_step(self, *a): print("before_step", end=" ")
    def on_before_zero_grad(self, *a): print("zero", end=" ")
L.seed_everything(1, verbose=False)
ds = torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randn(16, 4))
dl = torch.utils.data.DataLoader(ds, 4, shuffle=True)
t = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[Order()], accumulate_grad_batches=2, gradient_clip_val=0.5)
m = Mod()
t.fit(m, dl, dl)
print()
print({k: float(v).hex() for k, v in t.callback_metrics.items()}, t.global_step, M(m), R())
ck = torch.load("w.ckpt", weights_only=False) if t.save_checkpoint("w.ckpt") else torch.load("w.ckpt", weights_only=False)
print(sorted(ck), H(ck["state_dict"]))
os.remove("w.ckpt")
