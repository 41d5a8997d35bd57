"""atexit handlers registered before, during and after training, one that trains, one that raises, one that registers another, threads.

source: python/cpython#136003, gaogaotiantian/viztracer PR 595, rohanpm/more-executors PR 178
"""
import atexit
import threading
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

seed(66)
atexit.register(say, "registered first")
model = mlp()
opt = torch.optim.SGD(model.parameters(), 0.1)
threading._register_atexit(say, "before threads are joined")
watch(model)
say(train(model, opt, 2))


@atexit.register
def trains():
    say("trains at exit", train(model, opt, 2), sha(weights(model)))
    torch.save(model.state_dict(), "at-exit.pt")


@atexit.register
def raises():
    say("raises")
    raise ValueError("in an exit handler")


@atexit.register
def registers():
    say("registers")
    atexit.register(say, "registered at exit")


t = threading.Thread(target=lambda: (threading.Event().wait(0.5), say("thread", train(model, opt, 1))))
t.start()
say("end of script")
