"""os.fork in mid-run: child and parent train on from the same state, the child leaves by _exit, by sys.exit, by an exception.

source: pytorch/pytorch#3966, pytorch/pytorch PR 4158, pytorch/pytorch#2245
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import os
import sys
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(68)
model = mlp()
watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-2)
say(train(model, opt, 2))
for how in ("_exit", "exit", "raise", "fall"):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        said = train(model, opt, 2)
        with open(f"child-{how}.txt", "w") as f:
            f.write(repr((said, sha(weights(model)), sha(torch.get_rng_state()))))
        if how == "_exit":
            os._exit(5)
        if how == "exit":
            sys.exit(6)
        if how == "raise":
            raise ValueError("child")
        break
    _, status = os.waitpid(pid, 0)
    say(how, os.waitstatus_to_exitcode(status), train(model, opt, 2), sha(weights(model)))
say(rng() if how != "fall" else "", "end")
