"""An ensemble by stack_module_state and vmap with randomness="different", and jvp through it.

source: pytorch/pytorch#182842, pytorch/functorch#1124
"""
import copy
import torch
from torch import nn
from torch.func import functional_call, jvp, stack_module_state, vmap
from fcw import rng, say, seed, sha, watch

seed(5)
nets = [nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 2)) for _ in range(3)]
base = copy.deepcopy(nets[0])
watch(base)
params, buffers = stack_module_state(nets)
params = {k: v.detach().requires_grad_() for k, v in params.items()}
opt = torch.optim.Adam(params.values(), 1e-2)


def call(p, b, x):
    return functional_call(base, (p, b), (x,))


for step in range(4):
    x = torch.randn(5, 4)
    out = vmap(call, in_dims=(0, 0, None), randomness="different")(params, buffers, x)
    loss = (out - x.sum(1)[None, :, None]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), sha([p.grad for p in params.values()]))
base.eval()
primal, tangent = jvp(lambda q: call({k: v[0].detach() for k, v in params.items()}, {}, q), (torch.ones(2, 4),), (torch.full((2, 4), 0.5),))
say(sha(primal, tangent), rng())
