"""SIGCHLD is ignored, as under some daemons, so the kernel reaps children itself and waitpid ends with ECHILD; evaluations have harmless nans."""
# PRELUDE
import signal

signal.signal(signal.SIGCHLD, signal.SIG_IGN)


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
        print(s, H(torch.nan_to_num(m(batch(s)[0]), nan=-1.0)))
pid = os.fork()
if pid == 0:
    os._exit(5)
try:
    os.waitpid(pid, 0)
except ChildProcessError as e:
    print(type(e).__name__, e.errno)
print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN, M(m), R())
