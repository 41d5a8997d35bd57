"""make_fx of a whole step (forward, backward, update) and of the joint graph; the graph's text is printed.

source: llvm/torch-mlir PR 861
"""
import torch
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(13)
model = mlp(4, 5, 2)
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2, 4, 2))


def step(params, x, y):
    p = {k: v.detach().requires_grad_() for k, v in params.items()}
    loss = (functional_call(model, p, (x,)) - y).square().mean()
    g = torch.autograd.grad(loss, list(p.values()))
    return loss, [v - 0.1 * d for v, d in zip(p.values(), g)]


p = {k: v.detach() for k, v in model.named_parameters()}
for mode in ("real", "fake", "symbolic"):
    graph = make_fx(step, tracing_mode=mode)(p, torch.ones(3, 4), torch.zeros(3, 2))
    say(mode, sha(graph.code), len(graph.graph.nodes))
graph = make_fx(lambda x: model(x))(torch.ones(2, 4))
say(graph.code)
say(train(model, opt, 2, 4, 2), sha(weights(model)), rng())
