"""SIGTERM without a handler in mid-training: the process dies by that signal; the files written before.

Source: https://github.com/facebookincubator/submitit/pull/1615
"""
# PRELUDE
import signal
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(5):
    print(train(m, opt, 1, s), flush=True)
    if s == 3: torch.save(m.state_dict(), "w.pt"); os.kill(os.getpid(), signal.SIGTERM)
print("not reached?")
