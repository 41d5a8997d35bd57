"""ProcessPoolExecutor: an initializer that raises, a worker that dies, max_tasks_per_child, exceptions with a remote traceback as cause."""
# PRELUDE
import logging
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

logging.getLogger("concurrent.futures").setLevel(logging.CRITICAL + 1)


def bad():
    raise RuntimeError("initializer")


def fit(seed):
    torch.set_num_threads(1)
    m = net(seed)
    W(m)
    loss = train(m, torch.optim.Adam(m.parameters(), 1e-3), 3)
    if seed == 3:
        raise ArithmeticError("seed three", seed)
    if seed == 4:
        os._exit(11)
    return loss, M(m)


class Own(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a}-{b}")
        self.a, self.b = a, b

    def __reduce__(self):
        return Own, (self.a, self.b)


def own():
    e = Own(1, 2)
    e.add_note("a note that pickle keeps")
    raise e from ZeroDivisionError("cause")


if __name__ == "__main__":
    fork = mp.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=fork) as pool:
        print(list(pool.map(fit, [1, 2])))
        f = pool.submit(fit, 3)
        e = f.exception()
        print(type(e).__name__, e.args, type(e.__cause__).__name__, str(e.__cause__).strip().splitlines()[-1])
        e = pool.submit(own).exception()
        print(type(e).__name__, e.a, e.b, getattr(e, "__notes__", None), "direct cause" in str(e.__cause__))
    with ProcessPoolExecutor(1, mp_context=fork) as pool:
        try:
            pool.submit(fit, 4).result()
        except BrokenProcessPool as e:
            print(type(e).__name__, str(e)[:60])
    with ProcessPoolExecutor(1, mp_context=fork, initializer=bad) as pool:
        try:
            pool.submit(fit, 1).result()
        except BrokenProcessPool as e:
            print(type(e).__name__, str(e)[:60])
    with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn"), max_tasks_per_child=1) as pool:
        print([pool.submit(fit, i).result() for i in (5, 6)])
