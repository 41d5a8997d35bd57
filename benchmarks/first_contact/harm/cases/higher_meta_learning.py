"""MAML by `higher` (monkey-patched functional modules) and by hand with create_graph, inner loops inside an outer step.

source: facebookresearch/higher README; pytorch/pytorch#3835
meta: {"limit": 90}
"""
import warnings
warnings.simplefilter("ignore")
import higher
import torch
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(310)
model = mlp(3, 8, 1)
watch(model)
outer = torch.optim.Adam(model.parameters(), 1e-2)
inner = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    outer.zero_grad()
    for task in range(2):
        x = torch.randn(6, 3)
        y = (x * (task + 1)).sum(1, keepdim=True)
        with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (fmodel, diffopt):
            for k in range(2):
                diffopt.step((fmodel(x) - y).square().mean())
            loss = (fmodel(x) - y).square().mean()
            loss.backward()
            say(loss.item().hex())
    outer.step()
    fast = list(model.parameters())
    loss = (model(x) - y).square().mean()
    g = torch.autograd.grad(loss, fast, create_graph=True)
    second = sum(v.square().sum() for v in g)
    outer.zero_grad()
    second.backward()
    outer.step()
    say(second.item().hex(), sha(grads(model)))
say(sha(weights(model)), rng())
