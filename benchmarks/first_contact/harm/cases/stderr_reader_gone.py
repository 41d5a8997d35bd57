r"""The reader of stderr (a tee that died) is gone: SIGPIPE or EPIPE from the tool's lines must not end the run.

source: mildsunrise/mp4parser PR 12
meta: {"shell": "\"$@\" 2> >(exit 0)", "compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import signal
import time
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

time.sleep(0.5)
seed(99)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.0)
x, y = torch.ones(2, 8), torch.ones(2, 4)
for i in range(40):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
say(loss.item().hex(), sha(weights(model)), signal.getsignal(signal.SIGPIPE))
