"""After os.fork parent and child both go on to the end of the script (atexit, buffers): outputs of both, in the order of waitpid.

Source: https://github.com/wandb/wandb/issues/1927
"""
# PRELUDE
import atexit
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2), flush=True)
pid = os.fork()
atexit.register(lambda: print("atexit of", "child" if pid == 0 else "parent", flush=True))
if pid: print("status", os.waitpid(pid, 0)[1] >> 8)
print("child" if pid == 0 else "parent", train(m, opt, 3, 4), M(m), H(torch.get_rng_state(), np.random.get_state()))
if pid == 0: sys.exit(9)
