"""A script that trains, then replaces itself by os.execv with other arguments, three times (a restart idiom).

source: pytorch/pytorch#60910 (restarting a failed trainer)
truth: the third life prints its losses; exec leaves nothing of the first process, so what runs then is what was given to exec
meta: {"compare": ["status", "stdout", "files", "left"]}
"""
import os
import sys
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

life = int(sys.argv[1]) if len(sys.argv) > 1 else 0
seed(69 + life)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
if os.path.exists("state.pt"):
    state = torch.load("state.pt")
    model.load_state_dict(state)
say(life, train(model, opt, 2), sha(weights(model)))
torch.save(model.state_dict(), "state.pt")
fds = sorted(int(f) for f in os.listdir("/proc/self/fd"))
say("inheritable", [f for f in fds if f > 2 and os.path.exists(f"/proc/self/fd/{f}") and os.get_inheritable(f)])
if life < 2:
    os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), str(life + 1)])
