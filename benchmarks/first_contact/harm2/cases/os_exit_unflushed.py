"""os._exit(7) with unflushed stdout and a handler at exit that must not run.

Source: https://github.com/wandb/wandb/pull/1304
"""
# PRELUDE
import atexit
atexit.register(print, "must not run")
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3)); sys.stdout.flush(); print("lost in the buffer")
os._exit(7)
