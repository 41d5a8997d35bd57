"""An uncaught error deep in a forward: the traceback's lines of the script, its last line, and status 1.

source: pytorch/pytorch#42560
meta: {"expect_status": [1]}
"""
import torch
from torch import nn
from fcw import mlp, say, seed, train, watch

seed(81)


class Bad(nn.Module):
    def forward(self, x):
        return x @ torch.ones(3, 3)


model = mlp()
watch(model)
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 2))
net = nn.Sequential(nn.Linear(4, 4), Bad())
watch(net)


def outer():
    return net(torch.ones(2, 4))


outer()
