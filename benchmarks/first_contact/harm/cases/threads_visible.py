"""What the script sees of threads: count, names, native ids' number, daemons, excepthook, stack size, switch interval.

source: python/cpython#124149 (daemon threads), pytorch/pytorch PR 47886
"""
import os
import sys
import threading
import torch
from fcw import mlp, say, seed, train, watch

seed(37)
say(threading.active_count(), [t.name for t in threading.enumerate()], len(os.listdir("/proc/self/task")))
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
train(model, opt, 3)
say(threading.active_count(), [t.name for t in threading.enumerate()], len(os.listdir("/proc/self/task")))
say(threading.excepthook is threading.__excepthook__, threading.stack_size(), sys.getswitchinterval(), threading.gettrace(), threading.getprofile())
t = threading.Thread(target=lambda: train(model, opt, 2))
t.start()
t.join()
say(t.name, threading.active_count(), torch.get_num_threads(), torch.get_num_interop_threads())
