"""Started without a stdout: print does nothing or fails as Python does; status and files.

Source: https://github.com/python/cpython/issues/90650
"""
# PRELUDE
m = net(); r = train(m, torch.optim.SGD(m.parameters(), 0.1), 3)
open("r.txt", "w").write(f"{r} {sys.stdout} {M(m)} {sorted(os.listdir('/proc/self/fd'))}\n"); print("to nobody")
