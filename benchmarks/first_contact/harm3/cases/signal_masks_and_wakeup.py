"""pthread_sigmask blocks SIGTERM and SIGUSR1 around critical sections, set_wakeup_fd, sigpending, sigwait in a thread, SIGCHLD handler that counts children, siginterrupt: masks and counts."""
# PRELUDE
import signal
import socket
import threading

a, b = socket.socketpair()
b.setblocking(False)
old = signal.set_wakeup_fd(b.fileno())
got = []
signal.signal(signal.SIGUSR2, lambda n, f: got.append("usr2"))
signal.signal(signal.SIGCHLD, lambda n, f: got.append("chld"))
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(old, train(m, opt, 2))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGTERM)
print(train(m, opt, 3), sorted(s.name for s in signal.sigpending()), sorted(s.name for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
print(signal.sigwait({signal.SIGTERM}).name)
w = []
t = threading.Thread(target=lambda: w.append(signal.sigwait({signal.SIGUSR1}).name))
t.start()
train(m, opt, 2)
os.kill(os.getpid(), signal.SIGUSR1)
t.join()
os.kill(os.getpid(), signal.SIGUSR2)
pid = os.fork()
if not pid:
    os._exit(3)
print(os.waitpid(pid, 0)[1])
print(train(m, opt, 2), got, w, a.recv(100), signal.set_wakeup_fd(-1) == b.fileno(), M(m))
