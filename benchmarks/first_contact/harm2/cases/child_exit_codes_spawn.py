"""mp.spawn children that end by sys.exit, exceptions, signals: exit codes, what mp.spawn raises, torch's context join.

Source: https://github.com/python/cpython/issues/64177
"""
# PRELUDE
import torch.multiprocessing as mp, signal
def work(rank, how):
    n = net(rank); r = train(n, torch.optim.SGD(n.parameters(), 0.1), 2)
    if how == "exit": sys.exit(5)
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise": raise KeyError("child")
    open(f"r{rank}.txt", "w").write(r)
if __name__ == "__main__":
    for how in ("exit", "kill"):
        try:
            mp.spawn(work, (how,), nprocs=1); print(how, "fine")
        except Exception as e: print(how, type(e).__name__, getattr(e, "exit_code", None), getattr(e, "signal_name", None), str(e).strip().splitlines()[-1][:60])
