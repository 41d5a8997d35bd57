"""Timeouts by setitimer whose handler raises, at 40 points of forwards and steps: each reaches the script, whose values go on as bare.

source: mittagessen/kraken#448; pytorch/pytorch PR 3474
truth: the exception strikes at points of time; so the script prints only what does not depend on where: that each reached it, and a clean run after
meta: {"compare": ["status", "stdout", "files", "left", "tmp"], "limit": 90}
"""
import signal
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights


class Late(Exception):
    pass


def alarm(n, f):
    raise Late("too slow")


signal.signal(signal.SIGALRM, alarm)
seed(63)
model = mlp(64, 64, 8)
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
reached, other = 0, []
for i in range(40):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.003 + 0.0007 * i)
        while True:
            train(model, opt, 1, 64, 8)
    except Late:
        reached += 1
    except BaseException as e:
        other.append(type(e).__name__)
        signal.setitimer(signal.ITIMER_REAL, 0)
    torch.set_grad_enabled(True)
say(reached, other, torch._C._len_torch_dispatch_stack())
seed(64)
fresh = mlp()
watch(fresh)
say(train(fresh, torch.optim.SGD(fresh.parameters(), 0.1), 5), sha(weights(fresh)), rng())
