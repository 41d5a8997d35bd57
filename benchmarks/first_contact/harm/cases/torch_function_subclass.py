"""A Tensor subclass whose __torch_function__ logs each call with its name; its log is printed, and its metadata travels.

source: pytorch/pytorch#167223
"""
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, watch, weights

seed(10)
LOG = []


class Meta(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(getattr(func, "__name__", str(func)))
        out = super().__torch_function__(func, types, args, kwargs)
        if isinstance(out, Meta):
            out.tag = getattr(args[0], "tag", "none") if args else "none"
        return out


model = mlp()
watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-2)
for step in range(3):
    x = torch.randn(4, 8).as_subclass(Meta)
    x.tag = f"batch {step}"
    LOG.clear()
    out = model(x)
    loss = out.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(type(out).__name__, out.tag, loss.tag, sha(loss), len(LOG), LOG)
say(sha(weights(model)), rng())
