"""A user who may have no more processes or threads (RLIMIT_NPROC): fork and thread starts fail with EAGAIN; evaluations have harmless nans; training goes on."""
# PRELUDE
import resource, threading

m = net(3)
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)
print(train(m, opt, 3))
with torch.no_grad():
    print(H(m(batch(1)[0])))
os.setgroups([])
os.setresgid(54321, 54321, 54321)
os.setresuid(54321, 54321, 54321)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    print("forked")
except OSError as e:
    print(type(e).__name__, e.errno)
try:
    threading.Thread(target=print, args=("thread",)).start()
except RuntimeError as e:
    print(e)
for s in range(5):
    print(train(m, opt, 1, s))
    with torch.no_grad():
        print(H(torch.nan_to_num(m(batch(s)[0]).sqrt(), nan=0.0)))
print(M(m), R())
