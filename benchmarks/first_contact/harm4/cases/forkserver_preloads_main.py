"""A forkserver that preloads the main script once: children find its module and the model built at its top."""
# PRELUDE
import multiprocessing as mp

m = net(4)
imported = __name__


def child(q):
    import __main__
    torch.set_num_threads(1)
    W(m)
    loss = train(m, torch.optim.SGD(m.parameters(), 0.05), 3)
    q.put((imported, __name__, loss, M(m), os.path.basename(getattr(__main__, "__file__", "none"))))


if __name__ == "__main__":
    mp.set_start_method("forkserver")
    mp.set_forkserver_preload(["__main__", "colorsys"])
    q = mp.Queue()
    ps = [mp.Process(target=child, args=(q,)) for _ in range(2)]
    for p in ps:
        p.start()
        print(q.get(timeout=60))
        p.join()
    print([p.exitcode for p in ps], M(m))
