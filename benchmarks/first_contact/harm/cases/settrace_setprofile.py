"""sys.settrace, threading.settrace and sys.setprofile of the script's, set before, in mid-run and inside forward, still there after.

source: pytorch/pytorch#191839, zasdfgbnm/TorchSnooper#7, pypy/pypy#1943
"""
import sys
import threading
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(108)
CALLS = {}
ME = __file__


def tracer(frame, event, arg):
    if frame.f_code.co_filename == ME:
        key = frame.f_code.co_name, event
        CALLS[key] = CALLS.get(key, 0) + 1
        return tracer


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()

    def forward(self, x):
        y = self.body(x)
        y = y * 2
        return y


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
sys.settrace(tracer)
say(train(net, opt, 3), sys.gettrace() is tracer)
sys.settrace(None)
say(sorted(CALLS.items()))
CALLS.clear()
sys.setprofile(tracer)
say(train(net, opt, 3), sys.getprofile() is tracer)
sys.setprofile(None)
say({k: v for k, v in sorted(CALLS.items()) if k[1] in ("call", "return")})
CALLS.clear()
threading.settrace(tracer)
t = threading.Thread(target=lambda: train(net, opt, 2))
t.start()
t.join()
threading.settrace(None)
say(sorted(CALLS.items()), sha(weights(net)), rng())
