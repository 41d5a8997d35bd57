"""A timer's handler raises during training 40 times; the script counts raised and received exceptions and stops after that many handlers; no hang.

Source: https://github.com/sematic-ai/sematic/issues/932
"""
# PRELUDE
import signal
class Tick(Exception): pass
n = [0, 0]
def handler(s, f): n[0] += 1; raise Tick
m = net(); opt = torch.optim.SGD(m.parameters(), 1e-3); train(m, opt, 2)
signal.signal(signal.SIGALRM, handler)
s = 0
for k in range(40):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        for _ in range(3000):
            s += 1; train(m, opt, 1, s % 50)
            if n[0] > k: break
    except Tick:
        n[1] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
ok = net(); torch.set_grad_enabled(True)
print(n[0], n[1] >= n[0] - 2, train(ok, torch.optim.SGD(ok.parameters(), 0.1), 3), M(ok), signal.getsignal(signal.SIGALRM) is handler)
