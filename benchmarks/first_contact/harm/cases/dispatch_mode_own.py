"""The script's own TorchDispatchMode around the whole step: it rounds every bmm/addmm result; the values must be what they were.

source: pytorch/pytorch PR 110073, pytorch/pytorch#136565
"""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(8)


class Rounded(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default):
            out = tree_map(lambda t: (t * 1024).round() / 1024, out)
        return out


model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.01)
for step in range(4):
    x, y = torch.randn(5, 8), torch.randn(5, 4)
    with Rounded():
        loss = torch.nn.functional.huber_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
    opt.step()
    say(loss.item().hex(), sha(grads(model)))
with Rounded():
    for step in range(2):
        loss = model(torch.ones(2, 8)).logsumexp(0).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        say(loss.item().hex())
say(sha(weights(model)), rng())
