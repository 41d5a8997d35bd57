"""As pytest-socket does, the script replaces socket.socket, subprocess.Popen, os.fork and multiprocessing's Process.start by functions that raise, before training: nothing needs them, to the end."""
# PRELUDE
import multiprocessing.process
import socket
import subprocess


def no(*a, **k):
    sys.stderr.write("FORBIDDEN\n")
    raise RuntimeError("forbidden")


class Guard(socket.socket):
    def __new__(cls, *a, **k):
        no()


m = net(1)
W(m)
socket.socket = Guard
socket.create_connection = no
subprocess.Popen.__init__ = no
os.fork = os.posix_spawn = os.system = no
multiprocessing.process.BaseProcess.start = no
opt = torch.optim.Adam(m.parameters(), 1e-2)
print(train(m, opt, 8), M(m), R())
