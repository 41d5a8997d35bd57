"""The script clears its temporary folder (TMPDIR) as its first act and again between children, as cluster prologues do; children start, train and end."""
# PRELUDE
import multiprocessing as mp, shutil, tempfile


def child(n, q):
    torch.set_num_threads(1)
    m = net(n)
    W(m)
    q.put((n, train(m, torch.optim.SGD(m.parameters(), 0.05), 3), M(m)))


if __name__ == "__main__":
    t = os.environ["TMPDIR"]
    print(tempfile.gettempdir() == t, sorted(os.listdir(t)) if False else "")
    ctx = mp.get_context("fork")
    q = ctx.SimpleQueue()
    for n in range(3):
        shutil.rmtree(t, ignore_errors=True)
        if n == 2:
            os.makedirs(t, exist_ok=True)
        p = ctx.Process(target=child, args=(n, q))
        p.start()
        print(q.get(), flush=True)
        p.join()
        print(p.exitcode, flush=True)
        if n < 2:
            os.makedirs(t, exist_ok=True)
    shutil.rmtree(t, ignore_errors=True)
    m = net(5)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    print(train(m, opt, 3), M(m))
    with torch.no_grad():
        print(H(torch.nan_to_num(m(batch(1)[0]).log(), nan=0.0)), R())
    os.makedirs(t, exist_ok=True)
    sys.exit(6)
