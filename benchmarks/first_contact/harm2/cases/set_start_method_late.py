"""The script sets the start method itself (it must not be set before), register_at_fork functions, Manager, shared memory blocks.

Source: https://github.com/m2lines/Samudra/pull/782
"""
# PRELUDE
import multiprocessing as mp
def child(d, name):
    from multiprocessing import shared_memory
    s = shared_memory.SharedMemory(name=name); a = np.ndarray((4,), np.float32, s.buf); n = net(1); train(n, torch.optim.SGD(n.parameters(), 0.1), 2); a[:] = n[4].bias.detach().numpy(); del a; s.close(); d["m"] = M(n)
if __name__ == "__main__":
    m = net(); W(m); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2), mp.get_start_method(allow_none=True))
    mp.set_start_method("fork"); log = []; os.register_at_fork(before=lambda: log.append("before"), after_in_parent=lambda: log.append("parent"))
    from multiprocessing import shared_memory
    s = shared_memory.SharedMemory(create=True, size=16)
    with mp.Manager() as man:
        d = man.dict(); log.clear(); p = mp.Process(target=child, args=(d, s.name)); p.start(); p.join(); print(p.exitcode, d["m"], H(np.ndarray((4,), np.float32, s.buf).copy()), log)
    s.close(); s.unlink(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 1), M(m))
