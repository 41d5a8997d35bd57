"""deepcopy of weight_norm (old and new), spectral norm, parametrizations, before and after a forward; the errors are the same.

source: pytorch/pytorch#28594, pytorch/pytorch#102981, pytorch/pytorch#69413
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import warnings
warnings.simplefilter("ignore")
import copy
import io
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm
from torch.optim.swa_utils import AveragedModel
from fcw import rng, say, seed, sha, train, watch, weights

seed(38)


class Clamp(nn.Module):
    def forward(self, w):
        return w.clamp(-0.5, 0.5)



def saved(m):
    f = io.BytesIO()
    torch.save(m, f)
    return f.getvalue()


kinds = {
    "weight_norm": lambda: weight_norm(nn.Linear(8, 4)),
    "new weight_norm": lambda: parametrizations.weight_norm(nn.Linear(8, 4)),
    "spectral": lambda: spectral_norm(nn.Linear(8, 4)),
    "new spectral": lambda: parametrizations.spectral_norm(nn.Linear(8, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(8, 4)),
    "clamp": lambda: (lambda l: (parametrize.register_parametrization(l, "weight", Clamp()), l)[1])(nn.Linear(8, 4)),
}
for name, make in kinds.items():
    model = make()
    watch(model)
    opt = torch.optim.SGD(model.parameters(), 0.05)
    for part in range(2):
        for how in (copy.deepcopy, saved, AveragedModel, lambda m: copy.copy(m)):
            try:
                other = how(model)
                what = sha(other) if isinstance(other, bytes) else sha(weights(other)), type(other).__name__
            except Exception as e:
                what = type(e).__name__, str(e)[:80]
            say(name, part, what)
        say(train(model, opt, 2), type(model).__name__, parametrize.is_parametrized(model))
    with parametrize.cached():
        say(sha(model(torch.ones(1, 8)), model(torch.ones(1, 8))))
    say(sha(weights(model)))
say(rng())
