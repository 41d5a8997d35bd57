"""Trainings still queued in a ThreadPoolExecutor when the main script falls off its end: Python runs them before its exit handlers."""
# PRELUDE
import atexit, threading
from concurrent.futures import ThreadPoolExecutor

order = []
atexit.register(lambda: print("atexit", order, flush=True))
threading._register_atexit(lambda: print("threading atexit", order, flush=True))
pool = ThreadPoolExecutor(1)


def job(n):
    m = net(n)
    W(m)
    loss = train(m, torch.optim.SGD(m.parameters(), 0.05), 4)
    order.append(n)
    print("job", n, loss, M(m), threading.main_thread().is_alive(), flush=True)
    if n == 2:
        try:
            pool.submit(job, 9)
        except RuntimeError as e:
            print("refused", str(e)[:50])


for n in (1, 2, 3):
    pool.submit(job, n)
print("end of script", flush=True)
