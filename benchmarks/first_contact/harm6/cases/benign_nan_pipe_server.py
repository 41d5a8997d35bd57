"""A forward that asks a helper process through a Pipe for its next temperature (each request counts there) and gives a harmless nan in evaluation."""
import multiprocessing as mp


def serve(conn):
    n = 0
    while (got := conn.recv()) is not None:
        n += 1
        conn.send((n, 1.0 + 0.01 * n, got))
    conn.send(("served", n, None))


# PRELUDE
if __name__ == "__main__":
    ours, theirs = mp.get_context("fork").Pipe()
    helper = mp.get_context("fork").Process(target=serve, args=(theirs,))
    helper.start()

    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()
            self.numbers = []

        def forward(self, x, how=""):
            ours.send(how)
            n, t, back = ours.recv()
            self.numbers.append((n, back))
            y = self.body(x) / t
            return y.sqrt() if how else y

    m = Asks()
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    print(train(m, opt, 3), m.numbers)
    for k in range(4):
        with torch.inference_mode():
            y = m(batch(70 + k)[0], "root")
        print(k, int(y.isnan().sum()), m.numbers[-1], train(m, opt, 2, 3 + 2 * k), M(m))
    ours.send(None)
    print(ours.recv(), m.numbers)
    helper.join()
    print(helper.exitcode)
