r"""The tool's log dir is on a full disk of 256 KiB while the script saves its checkpoint elsewhere.

source: facebookresearch/dinov3#150 style long runs; own: a small tmpfs
meta: {"shell": "mkdir -p disk; exec unshare -m bash -c 'mount -t tmpfs -o size=256k tmpfs disk && (dd if=/dev/zero of=disk/fill bs=1k count=252 2>/dev/null; true) && exec \"$@\"' -- \"$@\"", "tool_args": ["--log-dir", "disk/logs"], "entrances": ["run"], "ignore": ["disk", "disk/*"], "compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import torch
from fcw import mlp, rng, say, seed, sha, train, weights

seed(103)
model = mlp(8, 64, 4)
opt = torch.optim.Adam(model.parameters(), 1e-3)
for part in range(4):
    say(train(model, opt, 10)[-1])
    torch.save(model.state_dict(), f"{part}.pt")
say(sha(weights(model)), rng())
