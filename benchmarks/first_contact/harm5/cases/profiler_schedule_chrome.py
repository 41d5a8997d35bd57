"""torch.profiler with a schedule and on_trace_ready, record_function in the loop, memory and shapes; counts of record_function blocks and of trace files, torch.utils.benchmark.Timer, ExecutionTraceObserver registered around a step."""
# PRELUDE
import json, glob, torch.profiler as tp
from torch.utils.benchmark import Timer
m = net(2)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
seen = []
def ready(p):
    p.export_chrome_trace(f"t{p.step_num}.json")
    seen.append(p.step_num)
with tp.profile(activities=[tp.ProfilerActivity.CPU], schedule=tp.schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready, record_shapes=True, profile_memory=True, with_modules=False) as p:
    for s in range(9):
        x, y = batch(s)
        with tp.record_function("## forward"):
            loss = F.mse_loss(m(x), y)
        with tp.record_function("## backward"):
            opt.zero_grad()
            loss.backward()
        opt.step()
        p.step()
print(seen, float(loss.detach()).hex(), M(m))
for f in sorted(glob.glob("t*.json")):
    ev = json.load(open(f))["traceEvents"]
    print(f, sum(e.get("name") == "## forward" for e in ev), sum(e.get("name") == "aten::linear" for e in ev), sum(str(e.get("name")).startswith("ProfilerStep") for e in ev))
    os.remove(f)
t = Timer("f(x)", globals={"f": lambda x: m(x), "x": batch(0)[0]}).timeit(3)
print(t.number_per_run, H(m(batch(1)[0])))
print(train(m, opt, 2, 20), M(m), R())
