"""Piped into head, which goes away: BrokenPipeError ends the script with Python's status; SIGPIPE stays ignored.

Source: https://github.com/python/cpython/issues/90650
"""
# PRELUDE
import signal
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1)
print(signal.getsignal(signal.SIGPIPE), flush=True)
for s in range(20000):
    print(train(m, opt, 1, s) if s < 5 else "x" * 100, flush=True)
