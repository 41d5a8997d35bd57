"""Tensors sent through multiprocessing queues under both sharing strategies, a child changes a shared weight in place, events and pipes; the parent trains with it watched; no process of torch_shm_manager stays."""
# PRELUDE
import torch.multiprocessing as mp


def child(q, back, w):
    while True:
        i = q.get()
        if i is None:
            break
        w.add_(i.sum())
        back.put(i * 2)
    back.put("end")


if __name__ == "__main__":
    m = net(1)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    print(train(m, opt, 1))
    for st in ("file_descriptor", "file_system"):
        mp.set_sharing_strategy(st)
        ctx = mp.get_context("fork")
        q, back = ctx.Queue(), ctx.Queue()
        w = torch.zeros(3).share_memory_()
        p = ctx.Process(target=child, args=(q, back, w))
        p.start()
        for s in range(3):
            q.put(torch.full((2,), float(s)))
            r = back.get()
            print(st, H(r), r.is_shared(), train(m, opt, 1, first=s))
        q.put(None)
        print(back.get())
        p.join()
        print(p.exitcode, w)
    print(M(m), R())
