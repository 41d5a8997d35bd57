"""Global pruning, custom masks, deepcopies of pruned models in training, masks kept in hooks, removal in mid-run.

source: pytorch/pytorch#37322, pytorch/pytorch#34257, pytorch/pytorch#102245
"""
import copy
import torch
from torch import nn
from torch.nn.utils import prune
from fcw import grads, mlp, rng, say, seed, sha, train, watch, weights

seed(39)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
say(train(model, opt, 2))
prune.global_unstructured([(model[0], "weight"), (model[2], "weight")], pruning_method=prune.L1Unstructured, amount=0.4)
prune.custom_from_mask(model[4], "bias", torch.tensor([1.0, 0, 1, 0]))
opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for part in range(3):
    say(train(model, opt, 2), model[0].weight.grad is None, float((model[0].weight == 0).float().mean()))
    try:
        twin = copy.deepcopy(model)
        say("copied", sha(weights(twin)), [type(h).__name__ for m in twin for h in m._forward_pre_hooks.values()])
    except RuntimeError as e:
        say(str(e)[:70])
    torch.save(model.state_dict(), f"{part}.pt")
    if part == 1:
        prune.random_structured(model[2], "weight", 0.25, dim=0)
for m, n in ((model[0], "weight"), (model[2], "weight"), (model[4], "bias")):
    prune.remove(m, n)
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 2), [list(m._forward_pre_hooks.values()) for m in model], prune.is_pruned(model))
say(sha(weights(model), grads(model)), rng())
