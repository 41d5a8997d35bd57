r"""The script's own checkpoint fails on a full disk: its OSError, and what it does next, are the same; the log dir is elsewhere.

source: own: a small tmpfs; pytorch forums "No space left on device" while saving
meta: {"shell": "mkdir -p disk; exec unshare -m bash -c 'mount -t tmpfs -o size=64k tmpfs disk && exec \"$@\"' -- \"$@\"", "tool_args": ["--log-dir", "logs"], "entrances": ["run", "watch"], "ignore": ["disk", "disk/*", "logs", "logs/*"], "compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import os
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(104)
model = mlp(8, 128, 4)
watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-3)
for part in range(3):
    say(train(model, opt, 3)[-1])
    try:
        torch.save(model.state_dict(), f"disk/{part}.pt")
        say("saved")
    except (OSError, RuntimeError) as e:
        say(type(e).__name__, getattr(e, "errno", None))
        for name in os.listdir("disk"):
            os.remove(f"disk/{name}")
    torch.save(model.state_dict(), "ok.pt")
say(sha(weights(model)), rng())
