"""A preemption handler of the script's: SIGTERM sets a flag, the loop saves and leaves by sys.exit(85); SIGUSR1 prints progress.

source: pytorch/pytorch#114097 (preempted nodes), Slurm's --signal=USR1 idiom
meta: {"expect_status": [85]}
"""
import os
import signal
import sys
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(61)
asked = []
signal.signal(signal.SIGTERM, lambda n, f: asked.append(n))
signal.signal(signal.SIGUSR1, lambda n, f: say("progress", f is not None))
model = mlp()
watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-2)
for step in range(20):
    say(train(model, opt, 1))
    if step in (2, 4):
        os.kill(os.getpid(), signal.SIGUSR1)
    if step == 6:
        os.kill(os.getpid(), signal.SIGTERM)
    if asked:
        torch.save({"m": model.state_dict(), "o": opt.state_dict(), "step": step}, "preempted.pt")
        say("saved at", step, asked, sha(weights(model)), rng())
        sys.exit(85)
