"""sys.excepthook, threading.excepthook and sys.last_value of the script's, an exception group at the end.

source: python/cpython PR 28549; ossobv/pstore#15
meta: {"expect_status": [1]}
"""
import sys
import threading
import torch
from fcw import mlp, say, seed, train, watch

seed(80)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2))


def hook(kind, value, tb):
    names = []
    while tb:
        names.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    say("hook", kind.__name__, [type(e).__name__ for e in value.exceptions], names[-2:])


sys.excepthook = hook
threading.excepthook = lambda a: say("thread hook", a.exc_type.__name__, a.thread.name)
t = threading.Thread(target=lambda: [][1], name="T")
t.start()
t.join()


def last():
    raise ExceptionGroup("several", [ValueError(1), TypeError(2)])


last()
