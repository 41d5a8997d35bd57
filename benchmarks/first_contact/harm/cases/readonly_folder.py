r"""A working folder and a TMPDIR that cannot be written, HOME that does not exist; nothing is left anywhere.

source: abrt/libreport PR 829 (guards); pytorch on read-only containers
meta: {"shell": "mkdir -p ro; exec unshare -m bash -c 'mount -t tmpfs -o ro,size=64k tmpfs ro && cd ro && TMPDIR=$PWD HOME=/nonexistent exec \"$@\"' -- \"${@:1:$#-1}\" \"$PWD/${@: -1}\""}
"""
import os
import tempfile
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

seed(102)
model = mlp()
watch(model)
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 3), sha(weights(model)), os.listdir("."))
try:
    open("x", "w")
except OSError as e:
    say(e.errno)
say(os.path.basename(os.getcwd()), os.environ["HOME"])
