"""A run that leaks shared memory and a semaphore: the resource tracker's warnings at the end, one tracker process, registrations counted; a leaked pool that Python joins; texts on stderr."""
import multiprocessing as mp
from multiprocessing import resource_tracker, shared_memory


def square(x):
    return x * x


# PRELUDE
if __name__ == "__main__":
    log = []
    orig_r, orig_u = resource_tracker.register, resource_tracker.unregister
    resource_tracker.register = lambda name, kind: (log.append(("+", kind)), orig_r(name, kind))[1]
    resource_tracker.unregister = lambda name, kind: (log.append(("-", kind)), orig_u(name, kind))[1]
    m = net()
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    print(train(m, opt, 3), log)
    shm = shared_memory.SharedMemory(create=True, size=4096, name=f"fc10-leak-{os.getpid()}")
    x = torch.frombuffer(shm.buf, dtype=torch.float32)[:48].view(6, 8)
    x.copy_(batch(1)[0])
    for s in range(3):
        opt.zero_grad()
        m(x).square().mean().backward()
        opt.step()
    with torch.no_grad():
        print(int(m(x).log().isnan().sum()))
    with mp.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, range(3)))
    sem = mp.get_context("spawn").Semaphore(1)
    print(M(m), [k for k in log if k[1] == "shared_memory"], len(log))
    tracker = resource_tracker._resource_tracker
    print(tracker._pid is not None, sorted(set(kind for _, kind in log)))
    del x, opt
    resource_tracker.register(f"/fc10-none-{'x' * 3}", "shared_memory")
    resource_tracker.unregister(f"/fc10-none-{'x' * 3}", "shared_memory")
    shm.close()
    if os.path.exists("/dev/shm/" + shm.name):
        import atexit
        path = "/dev/shm/" + shm.name
        sys.stdout.flush()
        sem_before = sem
