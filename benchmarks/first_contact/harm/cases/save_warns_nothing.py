"""Pickling parameters that a tool has hooked makes torch warn; all warnings of the saves are printed.

source: wandb/wandb PR 11907
"""
import copy
import io
import pickle
import warnings
import torch
from fcw import mlp, say, seed, sha, watch

seed(3)
model = mlp()
watch(model)
opt = torch.optim.Adam(model.parameters())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for step in range(3):
        out = model(torch.randn(4, 8))
        loss = out.square().mean()
        loss.backward()
        for thing in (model, list(model.parameters()), opt, [p.grad for p in model.parameters()]):
            f, g = io.BytesIO(), io.BytesIO()
            torch.save(thing, f)
            torch.save(copy.deepcopy(thing), g, pickle_protocol=4)
            pickle.dumps(thing, 5)
            say(step, sha(f.getvalue()), sha(g.getvalue()))
        opt.step()
        opt.zero_grad()
say(sorted(str(w.message)[:90] for w in caught))
say([p._backward_hooks for p in model.parameters()])
