"""A timeout decorator (alarm, restored handler) around slow forwards of the script; the exception's type, the handler afterwards.

Source: https://github.com/verl-project/verl/pull/1331
"""
# PRELUDE
import signal, time
class Slow(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.wait = 0
    def forward(self, x):
        time.sleep(self.wait); return self.l(x)
torch.manual_seed(0); m = Slow(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
def limited(f, *a):
    def h(s, fr): raise TimeoutError("too slow")
    old = signal.signal(signal.SIGALRM, h); signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        return f(*a)
    except TimeoutError as e:
        return repr(e)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, old)
m.wait = 5; print(limited(train, m, opt, 1)); m.wait = 0
print(train(m, opt, 3), signal.getsignal(signal.SIGALRM), M(m))
