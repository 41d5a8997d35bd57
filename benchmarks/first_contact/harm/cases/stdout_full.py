r"""stdout is a full device: the script's own OSError at flush, its status 120 at exit.

source: EvgSkv/logica PR 490; python docs exit status 120
meta: {"shell": "exec \"$@\" >/dev/full", "expect_status": [120]}
"""
import sys
import torch
from fcw import mlp, seed, sha, train, watch, weights

seed(96)
model = mlp()
watch(model)
said = train(model, torch.optim.SGD(model.parameters(), 0.1), 3)
try:
    print("x", flush=True)
except OSError as e:
    open("error.txt", "w").write(f"{e.errno} {said}")
print("left in the buffer")
