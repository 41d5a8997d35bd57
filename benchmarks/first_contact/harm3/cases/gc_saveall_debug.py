"""gc.set_debug(DEBUG_SAVEALL) during training without collections by thresholds: what a collection at the end finds of the script's own classes; gc.get_stats; objects tracked by the script."""
# PRELUDE
import gc


class Cyc:
    def __init__(self, k):
        self.me, self.k = self, k


m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2))
gc.collect()
gc.disable()
gc.set_debug(gc.DEBUG_SAVEALL)
for s in range(5):
    Cyc(s)
    train(m, opt, 1, first=s)
gc.collect()
print(sorted(o.k for o in gc.garbage if isinstance(o, Cyc)), sum(isinstance(o, torch.Tensor) and o.shape == (6, 16) for o in gc.garbage), gc.get_debug(), gc.isenabled())
gc.set_debug(0)
gc.garbage.clear()
gc.enable()
print(train(m, opt, 2), M(m))
