"""A hook on the AccumulateGrad node itself, reached by expand_as; pre-hooks on nodes that change gradients; nodes' names printed.

source: pytorch/pytorch#76464
"""
import torch
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(24)
model = mlp()
watch(model)
seen, keep = [], []
for name, p in model.named_parameters():
    node = p.view_as(p).grad_fn.next_functions[0][0]
    node.register_hook(lambda gi, go, name=name: seen.append((name, len(gi), len(go), go[0].abs().sum().item() > 0)))
    node.register_prehook(lambda go: tuple(g * 0.5 for g in go))
    keep.append(node)
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    out = model(torch.randn(4, 8))
    names, node = [], out.grad_fn
    while node is not None:
        names.append(node.name())
        node = next((n for n, _ in node.next_functions if n is not None and n.name() != "struct torch::autograd::AccumulateGrad"), None)
    opt.zero_grad()
    loss = out.square().mean()
    loss.backward()
    opt.step()
    say(names, seen[-6:], sha(grads(model)))
say(sha(weights(model)), rng())
