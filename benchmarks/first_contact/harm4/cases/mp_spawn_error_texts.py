"""torch.multiprocessing.spawn: a child's exception comes to the parent as ProcessRaisedException with its text, an exit code as ProcessExitedException; others are ended."""
# PRELUDE
import torch.multiprocessing as tmp


def work(i, how):
    torch.set_num_threads(1)
    m = net(i)
    W(m)
    train(m, torch.optim.SGD(m.parameters(), 0.05), 2)
    if how == "raise" and i == 1:
        raise KeyError("a child's own")
    if how == "exit" and i == 0:
        sys.exit(13)
    print(how, i, M(m), flush=True) if how == "fine" else None


if __name__ == "__main__":
    tmp.spawn(work, ("fine",), nprocs=1)
    for how in ("raise", "exit"):
        try:
            tmp.start_processes(work, (how,), nprocs=2, start_method="fork")
        except tmp.ProcessRaisedException as e:
            t = str(e).splitlines()
            print(type(e).__name__, e.error_index, t[1:3], t[-1], len([l for l in t if "case.py" in l]))
        except tmp.ProcessExitedException as e:
            print(type(e).__name__, e.error_index, e.exit_code, str(e))
    ctx = tmp.start_processes(work, ("fine",), nprocs=1, join=False, start_method="fork")
    while not ctx.join(5):
        pass
    print([p.exitcode for p in ctx.processes])
