"""Python's -W error (by environment) and warnings of the script's own forward, once by location, with the line that is named.

source: customerio/customerio-python PR 33; pytorch docs of stacklevel
meta: {"env": {"PYTHONWARNINGS": "error::RuntimeWarning,always::UserWarning"}}
"""
import warnings
import torch
from torch import nn
from fcw import mlp, say, seed, train, watch

seed(107)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()

    def forward(self, x):
        warnings.warn("from forward", UserWarning)
        warnings.warn("once", FutureWarning)
        return self.body(x)


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
with warnings.catch_warnings(record=True) as w:
    train(net, opt, 3)
say([(str(x.message), x.category.__name__, x.lineno, x.filename.rsplit("/", 1)[-1]) for x in w])
train(net, opt, 2)
sched = torch.optim.lr_scheduler.StepLR(opt, 2)
try:
    warnings.warn("rt", RuntimeWarning)
except RuntimeWarning as e:
    say("raised", e)
