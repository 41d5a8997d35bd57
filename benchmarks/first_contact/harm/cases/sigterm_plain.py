"""SIGTERM to itself in mid-run without a handler: it ends by the signal, files and stdout up to there as bare.

source: pytorch/pytorch PR 3474 (signal handling)
meta: {"expect_status": [-15]}
"""
import os
import signal
import torch
from fcw import mlp, say, seed, train, watch

seed(60)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(6):
    say(train(model, opt, 1))
    torch.save(model.state_dict(), "last.pt")
    if step == 3:
        say(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGUSR1))
        os.kill(os.getpid(), signal.SIGTERM)
say("never")
