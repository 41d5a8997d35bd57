"""torch.multiprocessing with the sharing strategy file_system and named shared memory blocks of Python's: what lies in /dev/shm afterwards, values on both sides."""
# PRELUDE
import glob
import multiprocessing as mp
from multiprocessing import shared_memory
import torch.multiprocessing as tmp

tmp.set_sharing_strategy("file_system")


def child(q, back, name):
    torch.set_num_threads(1)
    m = q.get()
    W(m)
    b = shared_memory.SharedMemory(name)
    a = np.ndarray((4,), np.float32, b.buf)
    loss = train(m, torch.optim.SGD(m.parameters(), 0.05), 3)
    a += 1
    back.put((loss, M(m), a.tolist()))
    back.get()
    del a
    b.close()


if __name__ == "__main__":
    before = len(glob.glob("/dev/shm/torch_*"))
    b = shared_memory.SharedMemory(create=True, size=16)
    a = np.ndarray((4,), np.float32, b.buf)
    a[:] = [1, 2, 3, 4]
    q, back = tmp.SimpleQueue(), tmp.SimpleQueue()
    m = net(4)
    m.share_memory()
    W(m)
    p = tmp.get_context("fork").Process(target=child, args=(q, back, b.name))
    p.start()
    q.put(m)
    print(back.get())
    back.put(None)
    p.join()
    print(p.exitcode, a.tolist(), all(w.is_shared() for w in m.parameters()), M(m)[:0], H(dict(m.state_dict())))
    print(train(m, torch.optim.SGD(m.parameters(), 0.05), 2, 5), H(dict(m.state_dict())))
    del a
    b.close()
    b.unlink()
