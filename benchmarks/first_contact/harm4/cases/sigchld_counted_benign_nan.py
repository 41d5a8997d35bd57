"""A handler of SIGCHLD reaps every child with waitpid(-1) and writes it down; evaluations have harmless nans; the script's own two children are the only ones it knows."""
# PRELUDE
import signal, time

reaped = []


def reap(*_):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        reaped.append(os.waitstatus_to_exitcode(status))


signal.signal(signal.SIGCHLD, reap)


class Score(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        y = self.fc(x)
        return y if self.training else y.sqrt()


m = Score()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    m.train()
    train(m, opt, 1, s)
    m.eval()
    with torch.no_grad():
        y = m(batch(s)[0])
        print(s, H(torch.where(y.isnan(), torch.zeros_like(y), y)), reaped)
for code in (5, 6):
    if os.fork() == 0:
        os._exit(code)
    while code not in reaped:
        time.sleep(0.01)
print(reaped, M(m), R())
