"""KeyboardInterrupt from SIGINT in a forward, caught; training resumes with the same random state; a second one ends the script.

source: pytorch/pytorch#43502
meta: {"expect_status": [-2], "compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import os
import signal
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(62)


class Stop(nn.Module):
    at = -1

    def forward(self, x):
        Stop.at -= 1
        if Stop.at == 0:
            os.kill(os.getpid(), signal.SIGINT)
            for i in range(1000):
                pass
        return x


signal.signal(signal.SIGINT, signal.default_int_handler)
model = nn.Sequential(nn.Linear(8, 8), Stop(), nn.Linear(8, 4))
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 3))
Stop.at = 2
try:
    train(model, opt, 5)
except KeyboardInterrupt:
    say("interrupted", sha(weights(model)), torch.is_grad_enabled(), torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack())
say(train(model, opt, 3), sha(weights(model)), rng())
Stop.at = 1
train(model, opt, 5)
