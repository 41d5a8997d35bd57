# what: atexit handlers that train and save, their order, sys.excepthook and threading.excepthook and unraisablehook of the script; ends with an error
# cmp: status stdout files left
# PRELUDE
import atexit, threading, weakref
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
def last(): print("last", train(model, opt, 2, 20)); torch.save(model.state_dict(), "final.pt"); print(M(model), R(), flush=True)
atexit.register(last); atexit.register(print, "registered second")
sys.excepthook = lambda t, e, tb: print("hook", t.__name__, e, e.__context__, getattr(e, "__notes__", None)); threading.excepthook = lambda a: print("thread", a.exc_type.__name__); sys.unraisablehook = lambda a: print("unraisable", a.exc_type.__name__)
class Bad:
    def __del__(self): raise KeyError("in del")
print(train(model, opt, 3)); Bad()
t = threading.Thread(target=lambda: train(model, opt, 1, 5) and 1 / 0); t.start(); t.join()
late = threading.Thread(target=lambda: (__import__("time").sleep(.3), print("late", train(model, opt, 2, 7)))); late.start()
weakref.finalize(model, print, "finalized")
raise ValueError("at the end")
