"""Inventory of the interpreter before and after training: filters, hooks, handlers, limits, paths, environment, callbacks, descriptors, threads.

Source: https://github.com/NVIDIA/TransformerEngine/issues/812
"""
# PRELUDE
import atexit, gc, locale, logging, resource, signal, sys, threading, time, warnings, multiprocessing as mp, asyncio, decimal, faulthandler
def inv():
    return [
        ("filters", H([str(f[:1]) + str(f[2].__name__) for f in warnings.filters if "numscope" not in str(f)])), ("showwarning", warnings.showwarning.__module__),
        ("signals", [(s.name, str(signal.getsignal(s))[:40]) for s in signal.Signals if "built-in function default_int" not in str(signal.getsignal(s)) and str(signal.getsignal(s)) not in ("Handlers.SIG_DFL", "Handlers.SIG_IGN", "None")]),
        ("int", signal.getsignal(signal.SIGINT) is signal.default_int_handler), ("argv", sys.argv), ("path0", sys.path[0] == os.getcwd()), ("paths", len(sys.path)),
        ("hooks", sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, threading.excepthook is threading.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, sys.breakpointhook is sys.__breakpointhook__),
        ("trace", sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile(), sys.get_asyncgen_hooks()[0]),
        ("limits", sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), [resource.getrlimit(getattr(resource, r)) for r in ("RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_STACK", "RLIMIT_AS")]),
        ("logging", logging.root.level, len(logging.root.handlers), logging.raiseExceptions, logging.getLogger("torch").level),
        ("gc", gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count()), ("std", type(sys.stdout).__name__, sys.stdout.line_buffering, sys.stderr is sys.__stderr__, sys.stdout is sys.__stdout__, sys.stdin is sys.__stdin__),
        ("umask", os.umask(0o22)), ("cwd", os.path.basename(os.getcwd())), ("locale", locale.setlocale(locale.LC_ALL)), ("env", sorted(k for k in os.environ if k not in ("_", "OLDPWD", "FC_WATCH"))),
        ("mp", mp.get_start_method(allow_none=True), mp.current_process().name, len(mp.active_children())), ("threads", threading.active_count(), len(os.listdir("/proc/self/task")) > 0),
        ("audit", faulthandler.is_enabled(), decimal.getcontext().prec, time.tzname), ("nice", os.getpriority(os.PRIO_PROCESS, 0) > -1, len(os.sched_getaffinity(0))),
        ("main", sorted(k for k in vars(sys.modules["__main__"]) if k.startswith("__"))), ("flags", list(sys.flags)), ("meta", [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path], len(sys.path_hooks)),
    ]
a = inv()
m = net(); W(m); print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 5), M(m))
b = inv()
for x, y in zip(a, b): print(x, "" if x == y else y)
