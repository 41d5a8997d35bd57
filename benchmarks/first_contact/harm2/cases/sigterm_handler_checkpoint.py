"""The script's SIGTERM handler sets a flag, saves, exits with 143; SIGUSR1 and SIGHUP handlers; getsignal before and after.

Source: https://github.com/NVIDIA-NeMo/Automodel/issues/405
"""
# PRELUDE
import signal
got = []
def h(s, f): got.append(signal.Signals(s).name)
for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGCHLD): signal.signal(s, h)
m = net(); W(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(6):
    print(train(m, opt, 1, s)); os.kill(os.getpid(), [signal.SIGUSR1, signal.SIGHUP][s % 2])
    if s == 4: os.kill(os.getpid(), signal.SIGTERM)
    if "SIGTERM" in got: torch.save({"m": m.state_dict(), "o": opt.state_dict()}, "c.pt"); break
print(got, [signal.getsignal(s) is h for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGCHLD)], M(m)); sys.exit(143)
