"""A TorchFunctionMode of the script's that turns relu into leaky relu and counts how often it did.

source: pytorch/pytorch PR 110073 (modes)
"""
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from fcw import mlp, rng, say, seed, sha, watch, weights

seed(11)


class Leaky(TorchFunctionMode):
    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.relu, nn.functional.relu, torch.Tensor.relu):
            self.count += 1
            return nn.functional.leaky_relu(args[0], 0.1)
        return func(*args, **(kwargs or {}))


model = mlp(act=nn.ReLU())
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.05)
mode = Leaky()
for step in range(4):
    with mode:
        loss = (model(torch.randn(6, 8)).relu() - 1).square().mean()
        loss.backward()
    opt.step()
    opt.zero_grad()
    say(loss.item().hex(), mode.count)
with Leaky() as outer, torch.device("cpu"):
    say(model(torch.zeros(1, 8)).shape, outer.count)
say(sha(weights(model)), rng())
