"""A non-daemon thread goes on training after the main thread has ended; its prints, its exception (threading.excepthook), status 0.

Source: https://github.com/rohanpm/more-executors/pull/178
"""
# PRELUDE
import threading, time, atexit
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
def late():
    threading.main_thread().join(); print("main is over"); print(train(m, opt, 4), M(m)); raise RuntimeError("in the late thread")
threading.excepthook = lambda a: print("hook", a.exc_value)
threading.Thread(target=late).start(); atexit.register(lambda: print("atexit", train(m, opt, 1)))
print(train(net(1), torch.optim.SGD(net(1).parameters(), 0.1), 2)); print("end of main")
