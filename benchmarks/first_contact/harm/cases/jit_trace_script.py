"""torch.jit.trace and script of a model in training with hooks of the script's own; the files' bytes and the graphs' text.

source: pytorch/pytorch#20862, pytorch/pytorch#53421, pytorch/pytorch#29037
meta: {"compare": ["status", "stdout", "stderr", "left", "tmp"]}
"""
import io
import re
import warnings
import torch
from torch import nn
from fcw import mlp, rng, say, seed, sha, train, watch, weights

warnings.simplefilter("ignore")
seed(15)
model = mlp()
seen = []
model[1].register_forward_hook(lambda m, i, o: seen.append(tuple(o.shape)))
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2))
traced = torch.jit.trace(model, torch.ones(2, 8))
say(re.sub(r" # .*", "", str(traced.inlined_graph)))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x):
        if x.sum() > 0:
            return self.l(x)
        return -self.l(x)


gate = Gate()
watch(gate)
train(gate, torch.optim.SGD(gate.parameters(), 0.1), 2, 8, 8)
script = torch.jit.script(gate)
say(script.code)
say(train(traced, torch.optim.SGD(traced.parameters(), 0.1), 2), train(script, torch.optim.SGD(script.parameters(), 0.1), 2, 8, 8))
say(seen, sha(weights(model)), sha(weights(gate)), rng())
