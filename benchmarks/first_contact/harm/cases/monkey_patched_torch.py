"""Functions of torch that the script replaces before and in mid-run: backward, Optimizer.step, Module.__call__, F.linear; put back after.

source: fangwei123456/spikingjelly PR 730 (patched calls), tinygrad PR 9284
"""
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(111)
LOG = []
model = mlp()
real_backward, real_linear, real_call, real_step = torch.Tensor.backward, nn.functional.linear, nn.Module.__call__, torch.optim.SGD.step


def backward(self, *a, **k):
    LOG.append("backward")
    return real_backward(self * 2, *a, **k)


def linear(x, w, b=None):
    LOG.append("linear")
    return real_linear(x, w, b) + 1


def call(self, *a, **k):
    LOG.append("call " + type(self).__name__)
    return real_call(self, *a, **k)


def step(self, *a, **k):
    LOG.append("step")
    return real_step(self, *a, **k)


torch.Tensor.backward = backward
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.05)
say(train(model, opt, 2), LOG)
LOG.clear()
nn.functional.linear, nn.Module.__call__, torch.optim.SGD.step = linear, call, step
opt = torch.optim.SGD(model.parameters(), 0.05)
say(train(model, opt, 2), LOG)
LOG.clear()
say(torch.Tensor.backward is backward, nn.functional.linear is linear, nn.Module.__call__ is call)
torch.Tensor.backward, nn.functional.linear, nn.Module.__call__, torch.optim.SGD.step = real_backward, real_linear, real_call, real_step
say(train(model, opt, 2), LOG, sha(weights(model)), rng())
