"""faulthandler enabled by the script, a dump later that never comes, then a real SIGSEGV: death by that signal.

Source: https://github.com/pytorch/pytorch/issues/22394
"""
# PRELUDE
import faulthandler, resource, signal
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
faulthandler.enable(open("fault.txt", "w") if False else sys.stderr); faulthandler.dump_traceback_later(100, exit=True); faulthandler.register(signal.SIGUSR2, chain=True) if False else None
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), faulthandler.is_enabled(), flush=True); faulthandler.cancel_dump_traceback_later()
os.kill(os.getpid(), signal.SIGSEGV)
