"""A daemonizing script: setsid, os.closerange(3, 256), dup2 of the standard streams in mid-run, and it trains on.

source: thesharp/daemonize PR 58
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import os
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(322)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 3))
os.closerange(3, 256)
say(train(model, opt, 3))
null = os.open("/dev/null", os.O_RDWR)
say("lowest free descriptor", null)
keep = os.dup(1)
os.dup2(null, 2)
os.dup2(null, 0)
say(train(model, opt, 25)[-1], keep)
torch.save(model.state_dict(), "w.pt")
say(sha(weights(model)), rng())
