"""sys.addaudithook forbids sockets, child processes, signals, ctypes and the writing of files outside the folder from the start of training to the interpreter's end."""
# PRELUDE
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
print(train(m, opt, 2))
armed = True
here = os.getcwd()


def hook(event, args):
    if not armed:
        return
    if event.startswith(("socket.", "subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.kill", "signal.", "shutil.", "tempfile.", "os.remove", "os.rename", "os.mkdir")):
        raise PermissionError(event)
    if event == "open" and isinstance(args[0], str) and isinstance(args[1], str) and set(args[1]) & set("wax+") and not args[0].startswith(here) and not args[0].startswith("/dev/"):
        raise PermissionError(event + " " + args[0])


sys.addaudithook(hook)
print(train(m, opt, 6))
with open(here + "/ok.txt", "w") as f:
    f.write(M(m))
try:
    open("not-allowed/file", "w")
except PermissionError as e:
    print(e)
print(M(m), R())
