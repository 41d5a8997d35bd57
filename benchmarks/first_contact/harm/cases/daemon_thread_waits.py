"""A daemon thread that has trained sleeps while the main thread ends: status 0, no wait for it.

source: pytorch/pytorch#38228, python/cpython#124149
"""
import threading
import time
import torch
from fcw import mlp, say, seed, train, watch

seed(67)
model, other = mlp(), mlp()
watch(model)
watch(other)
done = threading.Event()


def background():
    train(other, torch.optim.SGD(other.parameters(), 0.001), 5)
    done.set()
    time.sleep(10000)


threading.Thread(target=background, daemon=True).start()
done.wait()
begin = time.monotonic()
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 5))
say(time.monotonic() - begin < 20)
