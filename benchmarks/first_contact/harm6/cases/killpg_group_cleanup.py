"""A launcher's clean-up: the script makes its own process group, starts helpers in it, ignores SIGTERM itself and ends the whole group by killpg; who was in the group, statuses, the end of the script."""
import signal, subprocess, time
# PRELUDE
if os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
m = net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
helpers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    m2 = train(m, opt, 2)
    time.sleep(60)
    os._exit(0)
print(train(m, opt, 5), M(m), flush=True)
with torch.no_grad():
    torch.nan_to_num(m(batch(3)[0]).log())


def stat(p):
    try:
        return open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[2]
    except OSError:
        return ""


def group():
    return sorted(int(p) for p in os.listdir("/proc") if p.isdigit() and stat(p) == str(os.getpgrp()))


members = group()
print(len(members), set(members) == {os.getpid(), pid, *(h.pid for h in helpers)}, flush=True)
got = []
signal.signal(signal.SIGTERM, lambda *a: got.append(a[0]))
time.sleep(0.5)
os.killpg(os.getpgrp(), signal.SIGTERM)
print([h.wait() for h in helpers], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), got)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError as e:
    print(e.strerror)
print(train(m, opt, 3, 5), M(m), signal.getsignal(signal.SIGHUP), flush=True)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.killpg(os.getpgrp(), signal.SIGTERM)
