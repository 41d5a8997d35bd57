"""Four threads that train four models at once, each with its own generator, and one shared model under a lock in fixed order.

source: pytorch/pytorch#38228 (threads and autograd), pytorch docs "Multithreaded autograd"
"""
import threading
import torch
from torch import nn
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(75)
models = [nn.Sequential(mlp(8, 16, 4), nn.LayerNorm(4)) for _ in range(4)]
shared = mlp()
for m in (*models, shared):
    watch(m)
results, gates = {}, [threading.Semaphore(0) for _ in range(4)]
gates[0].release()
sopt = torch.optim.SGD(shared.parameters(), 0.1)


def work(i):
    g = torch.Generator().manual_seed(i)
    opt = (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad)[i](models[i].parameters(), lr=1e-2)
    said = []
    for step in range(8):
        loss = (models[i](torch.randn(5, 8, generator=g)) - i).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item().hex())
    for turn in range(3):
        gates[i].acquire()
        loss = shared(torch.randn(5, 8, generator=g)).square().mean()
        sopt.zero_grad()
        loss.backward()
        sopt.step()
        said.append(loss.item().hex())
        gates[(i + 1) % 4].release()
    results[i] = said, sha(weights(models[i]), grads(models[i]))


threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for i in range(4):
    say(results[i])
say(sha(weights(shared)), rng())
