"""torch.profiler and autograd.profiler around steps: they start, stop and export; the matrix products that they count (the number of addmm).

Source: https://docs.pytorch.org/tutorials/recipes/recipes/profiler_recipe.html
"""
# PRELUDE
from torch.profiler import profile, schedule, record_function, ProfilerActivity
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); log = []
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=lambda p: log.append({e.key: e.count for e in p.key_averages() if e.key in ("aten::addmm", "aten::linear", "mine")})) as p:
    for s in range(4):
        with record_function("mine"): r = train(m, opt, 1, s)
        p.step()
print(log, r)
with torch.autograd.profiler.profile() as q: print(train(m, opt, 2))
print(sum(e.count for e in q.key_averages() if e.key == "aten::addmm"), M(m))
