"""A sampling profiler of the script's own: ITIMER_PROF's handler looks at the interrupted frame (counts only frames of the script), ITIMER_VIRTUAL beside; handlers stay; results."""
# PRELUDE
import signal

hits = {"own": 0, "all": 0}


def sample(n, frame):
    hits["all"] += 1
    while frame:
        if frame.f_code.co_filename == __file__:
            hits["own"] += 1
            break
        frame = frame.f_back


signal.signal(signal.SIGPROF, sample)
signal.signal(signal.SIGVTALRM, sample)
m = net(1)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
train(m, opt, 1)
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
print(train(m, opt, 200))
signal.setitimer(signal.ITIMER_PROF, 0)
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
print(hits["own"] == hits["all"] > 20, signal.getsignal(signal.SIGPROF) is sample, M(m))
