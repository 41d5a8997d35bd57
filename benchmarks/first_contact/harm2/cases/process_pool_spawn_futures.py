"""ProcessPoolExecutor by spawn with an initializer; training in it; broken pool by os._exit; statuses.

Source: https://github.com/spack/spack/pull/41789
"""
# PRELUDE
import concurrent.futures as cf, multiprocessing as mp
def init(v): global G; G = v
def work(k):
    if k == 9: os._exit(1)
    n = net(k); return k + G, train(n, torch.optim.SGD(n.parameters(), 0.1), 2), M(n)
if __name__ == "__main__":
    m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
    with cf.ProcessPoolExecutor(1, mp.get_context("spawn"), init, (100,)) as ex:
        print(list(ex.map(work, [0, 1])))
        try:
            ex.submit(work, 9).result()
        except cf.process.BrokenProcessPool as e: print(type(e).__name__)
    print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
