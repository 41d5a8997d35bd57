"""gc.freeze after set-up, automatic collection off, collection by hand each second step, callbacks that count their calls.

source: pytorch/pytorch#95462, pytorch/torchtitan#696, meta-pytorch/tnt PR 534
"""
import gc
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(35)
model = mlp()
watch(model)
opt = torch.optim.AdamW(model.parameters(), 1e-2)
train(model, opt, 2)
gc.collect()
gc.freeze()
gc.disable()
calls = []
gc.callbacks.append(lambda phase, info: calls.append((phase, info["generation"])))
for step in range(6):
    say(train(model, opt, 1), gc.isenabled())
    if step % 2:
        gc.collect(1)
say(calls, gc.isenabled(), gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count() > 0, gc.get_debug())
gc.unfreeze()
gc.set_threshold(50, 2, 2)
gc.enable()
say(train(model, opt, 5), gc.get_threshold(), gc.isenabled())
say(sha(weights(model)), rng())
