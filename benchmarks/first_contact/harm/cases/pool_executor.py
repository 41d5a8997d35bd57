"""ProcessPoolExecutor and multiprocessing.Pool with initializers, chunks and an exception that travels back.

source: python/cpython PR 140735, spack/spack PR 41789, pyutils/line_profiler#422
meta: {"limit": 120, "compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import concurrent.futures as cf
import multiprocessing as mp
import torch
from fcw import mlp, say, seed, sha, train, watch, weights


class Task:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Task {self.n} of {type(self).__module__}"


def fit(task):
    if task.n == 3:
        raise LookupError(f"no {task}")
    seed(task.n)
    model = mlp()
    watch(model)
    return repr(task), train(model, torch.optim.SGD(model.parameters(), 0.1), 2), sha(weights(model))


def begin(x):
    seed(x)


if __name__ == "__main__":
    seed(72)
    with mp.get_context("spawn").Pool(2, begin, (5,)) as pool:
        say(pool.map(fit, [Task(0), Task(1)], chunksize=1))
    with cf.ProcessPoolExecutor(2, mp.get_context("fork"), begin, (5,)) as ex:
        jobs = [ex.submit(fit, Task(n)) for n in range(2, 5)]
        for j in jobs:
            try:
                say(j.result(timeout=100))
            except LookupError as e:
                say(type(e).__name__, e)
