"""Per-sample gradients by vmap(grad(functional_call)), jacrev and hessian through a module that is watched.

source: pytorch/pytorch#100105, pytorch/functorch#638
"""
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(4)
model = mlp(5, 7, 3)
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)


def loss_of(p, x, y):
    return (functional_call(model, p, (x[None],))[0] - y).square().mean()


for step in range(3):
    x, y = torch.randn(6, 5), torch.randn(6, 3)
    p = {k: v.detach() for k, v in model.named_parameters()}
    per = vmap(grad(loss_of), in_dims=(None, 0, 0))(p, x, y)
    say(sha(per))
    say(sha(vmap(jacrev(lambda a: functional_call(model, p, (a,))))(x), jacfwd(lambda a: functional_call(model, p, (a,)))(x[0])))
    say(sha(hessian(lambda b: loss_of({**p, "4.bias": b}, x[0], y[0]))(p["4.bias"])))
    opt.zero_grad()
    for k, v in model.named_parameters():
        v.grad = per[k].clamp(-1, 1).mean(0)
    opt.step()
    l = (model(x) - y).square().mean()
    opt.zero_grad()
    l.backward()
    opt.step()
    say(l.item().hex(), sha(grads(model)))
say(sha(weights(model)), rng())
