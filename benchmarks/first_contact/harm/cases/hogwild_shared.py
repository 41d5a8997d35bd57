"""A model in shared memory, updated in turns by two children (a lock makes the order certain), gradients shared too.

source: pytorch/examples mnist_hogwild; pytorch/pytorch#17199
meta: {"limit": 120}
"""
import torch
import torch.multiprocessing as mp
from fcw import mlp, say, seed, sha, train, watch, weights


def work(i, model, turn, done):
    watch(model)
    opt = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(4):
        while turn.value != i:
            pass
        seed(100 * step + i)
        train(model, opt, 1)
        turn.value = 1 - i
    done[i] = 1


if __name__ == "__main__":
    seed(71)
    ctx = mp.get_context("fork")
    model = mlp()
    watch(model)
    model.share_memory()
    turn, done = ctx.Value("i", 0), ctx.Array("i", 2)
    kids = [ctx.Process(target=work, args=(i, model, turn, done)) for i in range(2)]
    for k in kids:
        k.start()
    for k in kids:
        k.join()
    say([k.exitcode for k in kids], list(done), sha(weights(model)), all(p.is_shared() for p in model.parameters()))
    say(train(model, torch.optim.SGD(model.parameters(), 0.1), 2), sha(weights(model)))
