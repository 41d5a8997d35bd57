r"""A script that uses pdb by itself with commands from stdin: breakpoint() in forward, post_mortem after an error.

source: zasdfgbnm/TorchSnooper#7 (debuggers)
meta: {"stdin": "p x.shape\np self.n\nc\np 1 + 1\nc\nq\n"}
"""
import pdb
import sys
import torch
from torch import nn
from fcw import mlp, say, seed, sha, train, watch, weights

seed(120)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.n = nn.Linear(8, 4), 0

    def forward(self, x):
        self.n += 1
        if self.n < 3:
            pdb.Pdb(stdout=sys.stdout, nosigint=True, readrc=False).set_trace()
        if self.n == 5:
            raise ArithmeticError("five")
        return self.l(x)


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
try:
    train(net, opt, 9)
except ArithmeticError as e:
    d = pdb.Pdb(stdout=sys.stdout, readrc=False)
    d.reset()
    tb = e.__traceback__
    while tb.tb_next:
        tb = tb.tb_next
    d.interaction(None, e.__traceback__)
    say(tb.tb_frame.f_code.co_name, tb.tb_lineno)
say(sys.gettrace(), sha(weights(net)))
