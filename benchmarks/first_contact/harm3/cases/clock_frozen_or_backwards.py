"""The script freezes time.time, monotonic, perf_counter and sleep (as freezegun does), then lets them go backwards: training and the end of the run don't hang or fail; the clocks' call counts by the script alone are not compared."""
# PRELUDE
import time

real = time.time, time.monotonic, time.perf_counter, time.sleep
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2))
time.time = lambda: 1e9
time.monotonic = time.perf_counter = lambda: 5.0
time.monotonic_ns = time.perf_counter_ns = lambda: 5
time.sleep = lambda s: None
print(train(m, opt, 6))
n = [1e6]


def back():
    n[0] -= 10.0
    return n[0]


time.time = time.monotonic = time.perf_counter = back
print(train(m, opt, 6), M(m), R())
# nothing is put back: the interpreter ends with clocks that run backwards
