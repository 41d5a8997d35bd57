"""tracemalloc on in mid-run, snapshots by the script's files; faulthandler enabled with a timer; both as the script left them.

source: pytorch/pytorch#128211 (objgraph, tracking); own: faulthandler's timer
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import faulthandler
import signal
import tracemalloc
import torch

tracemalloc.start(1)
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(110)
say(tracemalloc.is_tracing(), tracemalloc.get_traceback_limit(), faulthandler.is_enabled())
log = open("fault.log", "w")
faulthandler.enable(log)
faulthandler.register(signal.SIGUSR2, log, all_threads=False, chain=True)
faulthandler.dump_traceback_later(60, file=log)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 3))
say(tracemalloc.is_tracing(), faulthandler.is_enabled(), faulthandler.unregister(signal.SIGUSR2))
faulthandler.cancel_dump_traceback_later()
faulthandler.disable()
tracemalloc.stop()
say(train(model, opt, 3), tracemalloc.is_tracing(), faulthandler.is_enabled(), sha(weights(model)), rng())
