"""Generators after each phase: import, model, first step, hundredth step, evaluation, alerts; also torch.Generator, secrets apart.

source: fairseq#1383, pytorch/pytorch PR 56488 (seeds)
"""
import random
import numpy as np

random.seed(5)
np.random.seed(5)
first = random.getstate()[1][:3], np.random.get_state()[1][:3].tolist()
import torch

torch.manual_seed(5)
from torch import nn
from fcw import mlp, rng, say, train, watch

say(first, rng())
model = nn.Sequential(mlp(), nn.Dropout(0.5))
scope = watch(model)
say(rng())
opt = torch.optim.SGD(model.parameters(), 0.0)
g = torch.Generator().manual_seed(9)
for part in range(6):
    for i in range(20):
        loss = model(torch.ones(4, 8)).square().mean() + 1
        opt.zero_grad()
        loss.backward()
        opt.step()
    say(part, rng(), random.random().hex(), float(np.random.rand()).hex(), torch.rand(1, generator=g).item().hex())
model.eval()
with torch.inference_mode():
    model(torch.ones(1, 8))
say(rng())
scope.close()
say(rng(), np.random.default_rng(3).integers(10**9), random.SystemRandom is not None)
