"""TMPDIR is the script's own folder; children are forked, one is killed, one spawned; the script ends by os._exit: which files are left there."""
# PRELUDE
import multiprocessing as mp, signal, tempfile, time


def child(n):
    torch.set_num_threads(1)
    m = net(n)
    W(m)
    loss = train(m, torch.optim.SGD(m.parameters(), 0.05), 3)
    with open(f"child{n}.txt", "w") as f:
        f.write(loss + " " + M(m))
    if n == 2:
        time.sleep(60)


if __name__ == "__main__":
    m = net(0)
    W(m)
    print(train(m, torch.optim.SGD(m.parameters(), 0.05), 3), M(m), flush=True)
    for n, method in ((1, "fork"), (2, "fork"), (3, "spawn")):
        p = mp.get_context(method).Process(target=child, args=(n,))
        p.start()
        if n == 2:
            while not os.path.exists("child2.txt"):
                time.sleep(0.02)
            time.sleep(0.2)
            p.kill()
        p.join()
        print(n, p.exitcode, flush=True)
    with tempfile.NamedTemporaryFile("w") as f:
        print(os.path.dirname(f.name) == os.getcwd(), flush=True)
    print(sorted(os.listdir(".")), flush=True)
    os._exit(3)
