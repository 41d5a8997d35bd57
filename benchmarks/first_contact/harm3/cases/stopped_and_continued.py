"""A child of the script's stops it (SIGSTOP) twice for half a second and lets it go on (SIGCONT, with a handler), as job control does; a second training waits for a monitor thread."""
# PRELUDE
import signal
import subprocess

n = []
signal.signal(signal.SIGCONT, lambda *a: n.append(1))
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
p = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.2; kill -STOP {os.getpid()}; sleep 0.5; kill -CONT {os.getpid()}; sleep 0.2; kill -STOP {os.getpid()}; sleep 0.5; kill -CONT {os.getpid()}"])
k = 0
while p.poll() is None:
    train(m, opt, 1, first=k % 3)
    k += 1
print(len(n), p.returncode, k > 3)
m = net(2)
W(m)
print(train(m, torch.optim.SGD(m.parameters(), 0.05), 5), M(m))
