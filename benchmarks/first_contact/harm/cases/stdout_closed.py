r"""stdout closed before the start: print is silent, the files tell; the status is the script's.

source: verigak/progress PR 73, jedbjorn/subfloor PR 674
meta: {"shell": "exec \"$@\" >&-"}
"""
import sys
import torch
from fcw import mlp, seed, sha, train, watch, weights

seed(94)
print("to nobody", flush=True)
model = mlp()
watch(model)
said = train(model, torch.optim.SGD(model.parameters(), 0.1), 3)
with open("told.txt", "w") as f:
    f.write(repr((said, sha(weights(model)), sys.stdout is None, f.fileno())))
