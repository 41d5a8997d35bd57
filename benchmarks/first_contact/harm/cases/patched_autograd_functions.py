"""torch.autograd.backward, torch.autograd.grad and Optimizer's class methods replaced by the script in mid-run; identities after the end.

source: pytorch/pytorch#42560 (stack through autograd.backward); own: identity of functions
truth: what the script put there stays there, and is called as often as bare
"""
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(112)
model = mlp()
scope = watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-2)
say(train(model, opt, 2))
count = [0, 0]
before_b, before_g = torch.autograd.backward, torch.autograd.grad


def b(*a, **k):
    count[0] += 1
    return before_b(*a, **k)


def g(*a, **k):
    count[1] += 1
    return before_g(*a, **k)


torch.autograd.backward, torch.autograd.grad = b, g
say(train(model, opt, 3), count)
x = torch.ones(1, 8, requires_grad=True)
say(sha(torch.autograd.grad(model(x).sum(), x)), count)
scope.close()
say(torch.autograd.backward is b, torch.autograd.grad is g)
say(train(model, opt, 2), count, sha(weights(model)), rng())
