"""stderr on a full device; the script warns and trains on.

Source: invented
"""
# PRELUDE
import warnings
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3): print(train(m, opt, 1, s), M(m))
try:
    sys.stderr.write("x\n"); sys.stderr.flush()
except OSError as e: print(e)
