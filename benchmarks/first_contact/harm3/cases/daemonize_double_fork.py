"""The classic daemon: two forks, setsid, streams onto files; the first process ends with status 0 at once, the daemon trains and writes its result."""
# PRELUDE
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2), flush=True)
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
fd = os.open("out.txt", os.O_CREAT | os.O_WRONLY, 0o644)
os.dup2(fd, 1), os.dup2(fd, 2)
print(train(m, opt, 4, first=2), M(m), os.getppid() > 0, flush=True)
os.close(os.open("done", os.O_CREAT | os.O_WRONLY, 0o644))
os._exit(0)
