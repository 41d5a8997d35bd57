"""A training process that tells its parent of each forward by a queued signal (os.kill(os.getppid(), SIGRTMIN)), as workers tell their launcher that they live; a harmless nan in evaluation: number of signals, the worker's exit code."""
import multiprocessing as mp, signal


def worker(q):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGRTMIN])

    class Beats(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def forward(self, x, log=False):
            os.kill(os.getppid(), signal.SIGRTMIN)
            y = self.body(x)
            return y.log() if log else y

    m = Beats()
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    for k in range(3):
        loss = train(m, opt, 3, 3 * k)
        with torch.no_grad():
            bad = int(m(batch(20 + k)[0], True).isnan().sum())
        q.put((k, loss, bad, M(m)))
    q.put(None)


# PRELUDE
if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    ctx = mp.get_context("fork")
    q = ctx.Queue()
    p = ctx.Process(target=worker, args=(q,))
    p.start()
    beats = 0
    while p.is_alive() or signal.sigpending():
        if signal.sigtimedwait([signal.SIGRTMIN], 0.2):
            beats += 1
    got = []
    while not q.empty():
        got.append(q.get(timeout=1))
    p.join()
    print(p.exitcode, beats, got)
