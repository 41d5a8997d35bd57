"""Children by os.fork that train and end by SIGKILL, abort, exit codes; what the parent's waitpid sees.

Source: https://github.com/pytorch/pytorch/issues/48382
"""
# PRELUDE
import signal, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2), flush=True); sys.stderr.flush()
for end in (lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3), lambda: sys.exit(4), lambda: 1 / 0, lambda: os.kill(os.getpid(), signal.SIGTERM), lambda: None):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
        try:
            open("child.txt", "a").write(train(m, opt, 2, 5) + M(m) + "\n"); end()
        except SystemExit as e:
            os._exit(e.code)
        except ZeroDivisionError:
            os._exit(5)
        os._exit(0)
    print(os.waitpid(pid, 0)[1])
print(train(m, opt, 2), M(m))
