"""Nested autocast regions, disabled islands, cached casts across no_grad, custom_fwd, bfloat16 weights with float32 masters.

source: pytorch/pytorch PR 26512 (custom functions under autocast)
"""
import torch
from torch import nn
from torch.amp import custom_bwd, custom_fwd
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(43)


class Mul(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.t(), a.t() @ g


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.w, self.b = nn.Linear(6, 6), nn.Parameter(torch.randn(6, 6)), nn.Linear(6, 2)

    def forward(self, x):
        h = self.a(x)
        kinds = [h.dtype]
        with torch.autocast("cpu", enabled=False):
            h = self.a(h.float())
            kinds.append(h.dtype)
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                h = self.a(h)
                kinds.append(h.dtype)
        h = Mul.apply(h, self.w)
        kinds.append(h.dtype)
        self.kinds = [str(k) for k in kinds]
        return self.b(h)


net = Net()
watch(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
for step in range(4):
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            before = net(torch.ones(1, 6))
        out = net(torch.randn(3, 6))
        loss = nn.functional.mse_loss(out.float(), torch.ones(3, 2))
        say(torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled(), torch.get_autocast_dtype("cpu"))
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(net.kinds, sha(before), loss.item().hex(), sha(grads(net)), torch.is_autocast_enabled("cpu"))
half = mlp().bfloat16()
watch(half)
masters = [p.detach().float().clone().requires_grad_() for p in half.parameters()]
mopt = torch.optim.SGD(masters, 0.1)
for step in range(3):
    half(torch.randn(4, 8).bfloat16()).float().square().mean().backward()
    for m, p in zip(masters, half.parameters()):
        m.grad, p.grad = p.grad.float(), None
    mopt.step()
    with torch.no_grad():
        for m, p in zip(masters, half.parameters()):
            p.copy_(m)
    say(sha(weights(half)))
say(sha(weights(net)), rng())
