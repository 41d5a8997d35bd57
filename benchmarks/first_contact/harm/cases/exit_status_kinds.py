"""Children of this case end in each way Python knows: their status, stdout and last stderr line, each with a training before.

source: python/cpython#136003; thesharp/daemonize PR 58
truth: the exit status of python itself
meta: {"limit": 170, "entrances": ["run"]}
"""
import os
import subprocess
import sys

BODY = """
import os, signal, sys, threading
sys.path.insert(0, os.environ['FC_LIB'])
import torch
from fcw import mlp, train
torch.manual_seed(0)
model = mlp()
print(train(model, torch.optim.SGD(model.parameters(), .1), 2))
{}
"""
ENDS = {
    "seven": "sys.exit(7)",
    "text": "sys.exit('gave up')",
    "three": "sys.exit(3)",
    "_exit": "sys.stdout.flush(); os._exit(9)",
    "interrupt": "raise KeyboardInterrupt",
    "abort": "sys.stdout.flush(); os.abort()",
}
watched = os.environ.get("FC_ENTRANCE") == "run"
for name, end in ENDS.items():
    path = f"{name}.py"
    with open(path, "w") as f:
        f.write(BODY.format(end))
    command = [os.environ["FC_VENV"] + "/bin/numscope", "run", path] if watched else [sys.executable, path]
    p = subprocess.run(command, capture_output=True, text=True)
    last = [l for l in p.stderr.splitlines() if l.strip() and not l.startswith("numscope:")]
    print(name, p.returncode, p.stdout.strip()[-40:], "|", (last or [""])[-1][:60], flush=True)
    os.remove(path)
