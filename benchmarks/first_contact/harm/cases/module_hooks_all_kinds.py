"""Every kind of module hook, with kwargs, always_call, prepend, global hooks, and hooks that change inputs and outputs; order printed.

source: pytorch/pytorch PR 63245, huggingface/diffusers#14135
"""
import torch
from torch import nn
from torch.nn.modules import module as M
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(26)
LOG = []
model = mlp()
watch(model)
handles = [
    model[0].register_forward_pre_hook(lambda m, a, k: (LOG.append("pre"), ((a[0] + 0.5,), k))[1], with_kwargs=True),
    model[0].register_forward_hook(lambda m, a, k, o: (LOG.append("post"), o * 1.5)[1], with_kwargs=True, always_call=True),
    model[2].register_forward_hook(lambda m, a, o: LOG.append("post2"), prepend=True),
    model[2].register_full_backward_pre_hook(lambda m, g: (LOG.append("bpre"), (g[0] * 0.9,))[1]),
    model[2].register_full_backward_hook(lambda m, gi, go: (LOG.append("bpost"), (gi[0] * 1.1,))[1]),
    M.register_module_forward_hook(lambda m, a, o: LOG.append("g:" + type(m).__name__)),
    M.register_module_forward_pre_hook(lambda m, a: LOG.append("gp:" + type(m).__name__)),
    M.register_module_full_backward_hook(lambda m, gi, go: LOG.append("gb:" + type(m).__name__)),
    M.register_module_parameter_registration_hook(lambda m, n, p: LOG.append("param " + n)),
]
opt = torch.optim.SGD(model.parameters(), 0.05)
for step in range(4):
    x = torch.randn(3, 8)
    loss = model(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), LOG, sha(grads(model)))
    LOG.clear()
    if step == 1:
        for h in handles[:5:2]:
            h.remove()
for h in handles:
    h.remove()
say([list(m._forward_hooks.values()) + list(m._forward_pre_hooks.values()) + list(m._backward_hooks.values()) for m in model])
say(sha(weights(model)), rng())
