"""What spawn says of targets that can't be pickled, of locks and of a model with a lambda; a Process object after a failed start; a second start; exit codes of children that never ran."""
# PRELUDE
import multiprocessing as mp, pickle, re, threading


def ok(x, m=None):
    print("child", x, None if m is None else H(dict(m.state_dict())), mp.current_process().name, mp.parent_process() is not None, flush=True)


class Holder:
    def __init__(self):
        self.lock = threading.Lock()

    def work(self):
        pass


if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    m = net(1)
    W(m)
    train(m, torch.optim.SGD(m.parameters(), 0.05), 2)

    def make():
        def local():
            pass
        return local

    lam = net(2)
    lam.f = lambda x: x
    for target, args in ((make(), ()), (Holder().work, ()), (lambda: 1, ()), (ok, (1, lam))):
        p = ctx.Process(target=target, args=args, name="fails")
        try:
            p.start()
            print("started")
        except Exception as e:
            print(type(e).__name__, re.sub('0x[0-9a-f]+', 'ADDRESS', str(e))[:110], p.pid is None, p._popen is None)
    p = ctx.Process(target=ok, args=(2, m))
    p.start()
    p.join()
    print(p.exitcode)
    try:
        p.start()
    except AssertionError as e:
        print(e)
    try:
        pickle.dumps(ctx.Process(target=ok, args=(3,)))
        print("pickled")
    except Exception as e:
        print(type(e).__name__, str(e)[:80])
    d = ctx.Process(target=ok, args=(4,), daemon=True)
    print(d.daemon, d.exitcode, repr(d).replace(str(os.getpid()), "PID"), sorted(k for k in vars(d) if not k.startswith("_")))
    d.start()
    d.join()
    print(d.exitcode, mp.active_children())
