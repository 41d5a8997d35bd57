"""saved_tensors_hooks that quantize what is saved, save_on_cpu, and the count of packs printed: a tool that saves one more shows.

source: pytorch/pytorch#62654, pytorch/pytorch#122729
"""
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(21)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
packs = []


def pack(t):
    packs.append(tuple(t.shape))
    return t.detach().to(torch.bfloat16), t.dtype


for step in range(4):
    x, y = torch.randn(4, 8), torch.randn(4, 4)
    packs.clear()
    with saved_tensors_hooks(pack, lambda p: p[0].to(p[1])):
        loss = (model(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    say(loss.item().hex(), len(packs), sorted(packs), sha(grads(model)))
    with save_on_cpu():
        loss = (model(x) - y).abs().mean()
    loss.backward()
    opt.step()
    say(sha(grads(model)))
say(sha(weights(model)), rng())
