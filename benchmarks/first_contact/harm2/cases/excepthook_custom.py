"""The script's sys.excepthook writes a crash file and prints the frames of its own files; threading.excepthook and unraisablehook too.

Source: https://github.com/1200wd/bitcoinlib/issues/423
"""
# PRELUDE
import threading, traceback
def hook(t, v, tb):
    fr = [(os.path.basename(f.filename), f.lineno, f.name) for f in traceback.extract_tb(tb)]
    open("crash.txt", "w").write(f"{t.__name__} {v} {fr}\n"); print("hook", t.__name__, v, fr)
sys.excepthook = hook; threading.excepthook = lambda a: print("thread hook", a.exc_type.__name__, a.exc_value)
sys.unraisablehook = lambda a: print("unraisable", type(a.exc_value).__name__)
class D:
    def __del__(self): raise OSError("del")
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); D(); print(train(m, opt, 2))
def outer(): raise LookupError("gone")
outer()
