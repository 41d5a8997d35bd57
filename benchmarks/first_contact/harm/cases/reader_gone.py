r"""The reader of stdout goes after the first line: BrokenPipeError reaches the script, which ends as bare.

source: trailofbits/graphtage#156, Backblaze/B2_Command_Line_Tool PR 1072
meta: {"shell": "set -o pipefail; \"$@\" | head -n 1; exit ${PIPESTATUS[0]}", "expect_status": [7]}
"""
import os
import sys
import time
import torch
from fcw import mlp, seed, train, watch

seed(98)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
print("first line", flush=True)
time.sleep(1)
try:
    for i in range(200):
        print(train(model, opt, 1), "x" * 1000, flush=True)
except BrokenPipeError as e:
    with open("broken.txt", "w") as f:
        f.write(type(e).__name__)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(7)
