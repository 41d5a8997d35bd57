"""Process subclasses with a run of their own, a run given to one object, guarded attributes, own pickling for spawn, kill and close: what a child runs, prints and how it ends."""
# PRELUDE
import multiprocessing as mp


class Worker(mp.Process):
    def __init__(self, number, conn):
        super().__init__(name=f"worker-{number}")
        self.number, self.conn = number, conn

    def run(self):
        torch.set_num_threads(1)
        m = net(self.number)
        W(m)
        loss = train(m, torch.optim.SGD(m.parameters(), 0.05), 3)
        self.conn.send((self.number, loss, M(m), type(self).__name__, "run" in vars(self), mp.current_process().name))
        self.conn.close()
        if self.number == 2:
            sys.exit(6)


class Guarded(mp.get_context("spawn").Process):
    allowed = True

    def __setattr__(self, name, value):
        if not name.startswith("_") and name not in ("name", "number", "daemon", "authkey"):
            raise AttributeError("guarded: " + name)
        super().__setattr__(name, value)

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "_popen"}

    def run(self):
        print("guarded", sorted(k for k in vars(self) if not k.startswith("_")), mp.current_process().name, flush=True)
        raise SystemExit(8)


class Replaced(mp.Process):
    pass


if __name__ == "__main__":
    for n in (1, 2):
        here, there = mp.Pipe()
        p = Worker(n, there)
        p.start()
        print(here.recv())
        p.join()
        print(p.exitcode, p.name, "run" in vars(p), p.run.__qualname__)
    r = Replaced()
    r.run = lambda: os._exit(9)
    r.start()
    r.join()
    print(r.exitcode, r.run.__name__)
    g = Guarded(name="g")
    try:
        g.start()
        g.join(60)
        print(g.exitcode)
    except AttributeError as e:
        print("refused", e)
    import time
    k = mp.Process(target=time.sleep, args=(60,))
    k.start()
    k.kill()
    k.join()
    print(k.exitcode, k.name.split('-')[0], k.daemon, sorted(x for x in vars(k) if not x.startswith('_')))
    k.close()
    try:
        k.is_alive()
    except ValueError as e:
        print(e)
