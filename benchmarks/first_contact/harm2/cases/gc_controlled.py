"""gc.disable with collections at fixed steps, gc.freeze, thresholds, gc.callbacks: settings are kept, callbacks are the script's alone.

Source: https://github.com/pytorch/torchtitan/pull/148
"""
# PRELUDE
import gc
gc.disable(); gc.collect(1); calls = []
cb = lambda phase, info: calls.append((phase, info["generation"]))
gc.callbacks.append(cb)
m = net(); W(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(6):
    train(m, opt, 1, s)
    if s % 3 == 2: gc.collect(1)
print(calls, gc.isenabled(), gc.callbacks == [cb], gc.garbage)
gc.freeze(); print(gc.get_freeze_count() > 0, train(m, opt, 2)); gc.unfreeze(); gc.callbacks.remove(cb)
gc.set_threshold(10, 2, 2); print(train(m, opt, 5), gc.get_threshold(), gc.get_debug(), M(m))
