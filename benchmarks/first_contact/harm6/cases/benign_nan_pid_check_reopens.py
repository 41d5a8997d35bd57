"""A log and a connection pool that look whether their process has changed (os.getpid() against the one kept, as redis-py and loggers do) and then open files of their own and leave a message; a harmless nan in evaluation: how many files and messages there are in the end."""
import glob, socket
# PRELUDE
inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
inbox.bind("inbox.sock")


class Pool:
    def __init__(self):
        self.pid, self.file, self.resets = None, None, 0

    def get(self):
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.resets += 1
            self.file = open(f"calls-{self.pid}.log", "ab", buffering=0)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
                s.sendto(b"connected", "inbox.sock")
        return self.file


pool = Pool()


class Logged(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x, log=False):
        pool.get().write(b"call\n")
        y = self.body(x)
        return y.log() if log else y


m = Logged()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for k in range(3):
    print(train(m, opt, 2, 2 * k))
    with torch.no_grad():
        print(int(m(batch(20 + k)[0], True).isnan().sum()), pool.resets, len(glob.glob("calls-*.log")), os.path.getsize(pool.file.name))
inbox.settimeout(0.2)
n = 0
try:
    while inbox.recv(100):
        n += 1
except TimeoutError:
    pass
print(n, M(m))
inbox.close()
for f in [*glob.glob("calls-*.log"), "inbox.sock"]:
    os.remove(f)
