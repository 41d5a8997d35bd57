"""Two hundred models made, trained and dropped in functions and comprehensions, with gc disabled between: which are alive, memory.

source: jacobgil/pytorch-grad-cam#88, chr5tphr/zennit PR 13
"""
import gc
import resource
import weakref
import torch
from fcw import mlp, say, seed, train, watch

seed(32)
refs, opts = [], []


def one(i):
    model = mlp(16, 256, 4)
    scope = watch(model)
    opt = torch.optim.Adam(model.parameters())
    train(model, opt, 2, 16)
    refs.append(weakref.ref(model))
    opts.append(weakref.ref(opt))
    if i % 2:
        model.cycle = [model]
    scope.close()


for i in range(30):
    one(i)
gc.collect()
first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for i in range(170):
    one(i)
gc.collect()
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) / 1024
say(len(refs), "alive:", sum(r() is not None for r in refs[:-20]), sum(o() is not None for o in opts[:-20]))
say("memory grown by less than 60 MiB:", grown < 60)
