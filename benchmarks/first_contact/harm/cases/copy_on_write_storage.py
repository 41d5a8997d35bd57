"""Storages shared by mmap, torch.from_file, untyped storage resized to zero and back (as FSDP does), frozen numpy arrays as inputs.

source: PaddlePaddle PR 77147 / FSDP's resize of storages; pytorch docs of storage resize
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import warnings
warnings.simplefilter("ignore")
import numpy as np
import torch
from torch import nn
from fcw import grads, rng, say, seed, sha, train, watch, weights

seed(323)
torch.arange(64, dtype=torch.float32).numpy().tofile("data.bin")
mapped = torch.from_file("data.bin", shared=True, size=64).view(8, 8)
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.01)
frozen = np.ones((3, 8), dtype="f")
frozen.flags.writeable = False
for step in range(4):
    x = torch.cat([mapped / 64, torch.from_numpy(frozen)])
    loss = model(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    mapped += 1
    for p in (model[0].weight, model[2].weight):
        keep, size = p.detach().clone(), p.untyped_storage().size()
        p.untyped_storage().resize_(0)
        p.untyped_storage().resize_(size)
        with torch.no_grad():
            p.copy_(keep)
    say(loss.item().hex(), sha(mapped), sha(grads(model)))
torch.save(model.state_dict(), "w.pt")
loaded = torch.load("w.pt", mmap=True)
model.load_state_dict(loaded, assign=True)
opt = torch.optim.SGD(model.parameters(), 0.01)
say(train(model, opt, 2), sha(weights(model)), open("data.bin", "rb").read()[:8], rng())
