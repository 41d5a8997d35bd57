r"""stderr closed, and stdin too: what the script writes to its own first opened file must hold the script's bytes alone.

source: verigak/progress PR 73, ossobv/pstore#15
meta: {"shell": "exec \"$@\" 2>&- <&-", "compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import os
import sys
import warnings
import torch
from fcw import mlp, seed, sha, train, watch, weights

seed(95)
fd = os.open("first.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
warnings.warn("to nobody")
print("lost", file=sys.stderr)
model = mlp()
watch(model)
said = train(model, torch.optim.SGD(model.parameters(), 0.1), 25)
os.write(fd, repr((said[-1], sha(weights(model)), sys.stderr is None)).encode())
os.close(fd)
print(said[-1])
