"""tracemalloc started by the script: tracing stays on, limits are kept, memory of the script's own lines stays of the same order.

Source: https://github.com/fatiando/verde/issues/290 (ResourceWarning and tracemalloc)
"""
# PRELUDE
import tracemalloc
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1); train(m, opt, 3)
tracemalloc.start(3); train(m, opt, 3)
print(tracemalloc.is_tracing(), tracemalloc.get_traceback_limit())
a = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
train(m, opt, 100)
b = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
print(sum(s.size_diff for s in b.compare_to(a, "lineno")) < 60_000, tracemalloc.is_tracing(), M(m))
