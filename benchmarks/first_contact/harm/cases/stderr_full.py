r"""stderr is a full device: the tool can say nothing; the run and its output are the same.

source: graphtage#156 (closed streams)
meta: {"expect_status": [120], "shell": "exec \"$@\" 2>/dev/full"}
"""
import sys
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

seed(97)
model = mlp()
watch(model)
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 30)[-1])
try:
    sys.stderr.write("x")
    sys.stderr.flush()
except OSError as e:
    say(e.errno)
say(sha(weights(model)))
