"""A worker thread trains for ever until the main thread cancels it by PyThreadState_SetAsyncExc; it cleans up; the main thread then trains another model, and the first again."""
# PRELUDE
import ctypes
import threading
import time


class Cancel(Exception):
    pass


m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.0)
state = []
started = threading.Event()


def work():
    try:
        k = 0
        while True:
            train(m, opt, 1, first=k % 3)
            k += 1
            if k > 20:
                started.set()
    except Cancel:
        state.append("cancelled")
    finally:
        state.append("cleaned")


t = threading.Thread(target=work)
t.start()
started.wait()
for _ in range(100):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(t.ident), ctypes.py_object(Cancel))
    t.join(0.2)
    if not t.is_alive():
        break
print(state, t.is_alive())
n = net(2)
W(n)
print(train(n, torch.optim.SGD(n.parameters(), 0.05), 4), M(n))
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3), H(dict(m.state_dict())))
