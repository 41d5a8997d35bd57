"""Shapes by FakeTensorMode in the middle of training, with the model's own parameters faked and a meta twin.

source: pytorch/pytorch#100105 (data pointer of a tensor without storage); torchdistx, pytorch/pytorch PR 65834
"""
import copy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(12)
model = mlp()
watch(model)
opt = torch.optim.Adam(model.parameters())
for part in range(3):
    say(train(model, opt, 2))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        out = model(torch.randn(7, 8))
        say(type(out).__name__, tuple(out.shape))
        p = {k: mode.from_tensor(v) for k, v in model.named_parameters()}
        say(tuple(functional_call(model, p, (mode.from_tensor(torch.ones(3, 8)),)).shape))
    meta = copy.deepcopy(model).to("meta")
    say(tuple(meta(torch.empty(9, 8, device="meta")).shape), meta[0].weight.is_meta)
say(sha(weights(model)), rng())
