"""A forward takes noise from a queue that a thread fills; a watchdog thread ends the process with status 9 where no step was made for 6 seconds; a harmless nan in evaluation."""
import queue, threading, time
# PRELUDE
noise, beat, over = queue.Queue(2), [time.monotonic()], threading.Event()


def feed():
    g = torch.Generator().manual_seed(5)
    while not over.is_set():
        z = torch.rand(6, 8, generator=g)
        while not over.is_set():
            try:
                noise.put(z, timeout=0.1)
                break
            except queue.Full:
                pass


def watchdog():
    while not over.wait(0.2):
        if time.monotonic() - beat[0] > 6:
            print("watchdog: no heartbeat", flush=True)
            os._exit(9)


for f in (feed, watchdog):
    threading.Thread(target=f, daemon=True).start()


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x, sqrt=False):
        y = self.body(x + 0.01 * noise.get())
        return y.sqrt() if sqrt else y


m = Noisy()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for k in range(3):
    print(train(m, opt, 3, 3 * k))
    beat[0] = time.monotonic()
    with torch.no_grad():
        print(k, int(m(batch(k)[0], True).isnan().sum()), flush=True)
    beat[0] = time.monotonic()
over.set()
print(M(m))
