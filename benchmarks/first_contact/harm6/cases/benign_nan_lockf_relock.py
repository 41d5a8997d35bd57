"""The job holds a POSIX lock for its whole run, its forward locks the same file again (no wait within one process); a harmless nan in evaluation; SIGALRM's default action ends a run that takes too long."""
import fcntl, signal, subprocess
# PRELUDE
lock = open("job.lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
whole = open("whole.lock", "w")
fcntl.flock(whole, fcntl.LOCK_EX)
signal.alarm(20)


class Locked(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x, log=False):
        fcntl.lockf(lock, fcntl.LOCK_EX)
        y = self.body(x)
        return y.log() if log else y


def free(kind, name):
    code = f"import fcntl\ntry:\n fcntl.{kind}(open('{name}','w'), fcntl.LOCK_EX|fcntl.LOCK_NB); print('free')\nexcept OSError: print('held')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()


m = Locked()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for k in range(2):
    print(train(m, opt, 2, 2 * k), flush=True)
    with torch.no_grad():
        print(int(m(batch(20 + k)[0], True).isnan().sum()), flush=True)
    print(free("lockf", "job.lock"), free("flock", "whole.lock"), flush=True)
fcntl.flock(whole, fcntl.LOCK_UN)
lock.close()
print(free("lockf", "job.lock"), free("flock", "whole.lock"), M(m))
