"""The model watched, closed between forward and backward, watched again, twice at once, in a with that an exception leaves; hooks left.

source: wandb/wandb#1164 and PR 6503 (unwatch, then watch)
meta: {"entrances": ["run", "watch"]}
"""
import torch
from fcw import grads, mlp, rng, say, seed, sha, train, watch, weights

seed(302)
model = mlp()
opt = torch.optim.Adam(model.parameters(), 1e-2)
scope = watch(model)
say(train(model, opt, 2))
out = model(torch.ones(2, 8))
scope.close()
out.square().mean().backward()
scope = watch(model)
opt.step()
opt.zero_grad()
say(train(model, opt, 1))
scope.close()
scope.close()
try:
    with watch(model):
        say(train(model, opt, 1))
        out = model(torch.ones(2, 8))
        raise KeyError("leaves the with")
except KeyError as e:
    say("caught", e)
out.sum().backward()
say(sha(grads(model)))
opt.zero_grad()
with watch(model) as a:
    with watch(model[0]):
        say(train(model, opt, 2))
        loss = model(torch.ones(1, 8)).sum()
    loss.backward()
opt.step()
first = watch(model)
other = mlp()
with watch(other):
    model(torch.ones(1, 8)).sum().backward()
    first.close()
    say(train(other, torch.optim.SGD(other.parameters(), 0.1), 2))
say([dict(m.__dict__["_forward_hooks"].items()) for m in model.modules()], [p._backward_hooks for p in model.parameters()])
say(train(model, opt, 2), sha(weights(model), weights(other)), rng())
