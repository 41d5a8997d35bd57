"""A script that reaps every child with os.wait and SIGCHLD, and counts them: a tool's helper process would be among them.

source: pytorch/pytorch PR 3474 (SIGCHLD handlers of loaders); own: reaping
truth: the pids reaped are the script's own children, no more; ECHILD at the end
"""
import os
import signal
import time
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights

caught = []
signal.signal(signal.SIGCHLD, lambda n, f: caught.append(n))
seed(321)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
mine = []
for i in range(3):
    say(train(model, opt, 10)[-1])
    pid = os.fork()
    if pid == 0:
        os._exit(i)
    mine.append(pid)
time.sleep(0.3)
reaped = []
while True:
    try:
        pid, status = os.wait()
    except ChildProcessError as e:
        say("no more", e.errno)
        break
    reaped.append((pid in mine, os.waitstatus_to_exitcode(status)))
say(sorted(reaped), len(caught) > 0, sha(weights(model)), rng())
