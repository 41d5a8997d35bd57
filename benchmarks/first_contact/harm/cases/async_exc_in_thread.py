"""An exception injected into a training thread by PyThreadState_SetAsyncExc, thirty times; the main thread trains on, bitwise.

source: python/cpython#139622, google/openhtf PR 740, glenfant/stopit PR 31
truth: as for timeouts: only what does not depend on where it strikes is printed
meta: {"compare": ["status", "stdout", "files", "left", "tmp"], "limit": 120}
"""
import ctypes
import threading
import time
import torch
from fcw import mlp, say, seed, sha, watch, weights


class Killed(Exception):
    pass


ends, other = [], []


def work(ready, model, opt, g):
    try:
        ready.set()
        while True:
            loss = (model(torch.randn(4, 8, generator=g)) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    except Killed:
        ends.append(1)
    except BaseException as e:
        other.append(repr(e))


for i in range(30):
    model = mlp()
    watch(model)
    ready = threading.Event()
    t = threading.Thread(target=work, args=(ready, model, torch.optim.SGD(model.parameters(), 0.01), torch.Generator().manual_seed(i)))
    t.start()
    ready.wait()
    time.sleep(0.01 + 0.002 * i)
    for again in range(200):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(t.ident), ctypes.py_object(Killed))
        t.join(0.25)
        if not t.is_alive():
            break
    assert not t.is_alive()
say(len(ends), other, threading.active_count(), torch.is_grad_enabled())
seed(65)
model = mlp()
watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-2)
for i in range(4):
    loss = (model(torch.randn(4, 8)) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex())
say(sha(weights(model)))
