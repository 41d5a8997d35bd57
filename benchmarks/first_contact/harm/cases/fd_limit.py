r"""ulimit -n 40: the script opens what it may and is told EMFILE at the same count.

source: pytorch/pytorch#43455 style limits; own: a low limit
truth: the number of descriptors that the script may still open is printed; a tool that keeps some open shows
meta: {"shell": "ulimit -n 64; exec \"$@\""}
"""
import os
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

seed(105)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
train(model, opt, 3)
opened = []
try:
    while True:
        opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e:
    say("opened", len(opened), e.errno, opened[0])
say(train(model, opt, 3))
for fd in opened:
    os.close(fd)
say(train(model, opt, 3), sha(weights(model)))
