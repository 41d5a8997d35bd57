"""sys.unraisablehook and threading.excepthook of the script's own: every error in a finalizer, a hook's __del__ or a thread is written down once, with its object."""
# PRELUDE
import gc, threading

log = []
sys.unraisablehook = lambda u: log.append(("unraisable", u.exc_type.__name__, str(u.exc_value), getattr(u.object, "__qualname__", None), u.err_msg))
threading.excepthook = lambda a: log.append(("thread", a.exc_type.__name__, str(a.exc_value), a.thread.name))


class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        if threading.current_thread() is not threading.main_thread():
            raise OSError("in a thread's forward")
        return self.fc(x)

    def __del__(self):
        raise ValueError("in __del__")


def one():
    m = Bad()
    W(m)
    print(train(m, torch.optim.SGD(m.parameters(), 0.05), 3), M(m))
    t = threading.Thread(target=m, args=(batch(0)[0],), name="t1")
    t.start()
    t.join()
    return train(m, torch.optim.SGD(m.parameters(), 0.05), 2)


print(one())
gc.collect()
print(log)


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.thing = Thing()
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Thing:
    def __del__(self):
        raise TypeError("context gone")


class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return Noisy.apply(self.fc(x))


n = N()
W(n)
print(train(n, torch.optim.SGD(n.parameters(), 0.01), 3))
gc.collect()
print(len(log), sorted(set(log)), M(n), R())
