"""A fork Pool whose processes train and return weights; imap order; an error in one; the parent's model is watched.

Source: https://github.com/pytorch/pytorch/issues/17199
"""
# PRELUDE
import multiprocessing as mp
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
def work(k):
    if k == 3: raise ValueError("three")
    n = net(k); return k, train(n, torch.optim.SGD(n.parameters(), 0.1), 3), M(n), train(m, opt, 1, k)
if __name__ == "__main__":
    with mp.get_context("fork").Pool(1) as p:
        print(p.map(work, [0, 1])); it = p.imap(work, [2, 3, 4])
        for _ in range(3):
            try:
                print(next(it))
            except ValueError as e: print(repr(e))
        p.close(); p.join()
    print(train(m, opt, 2), M(m), len(mp.active_children()))
