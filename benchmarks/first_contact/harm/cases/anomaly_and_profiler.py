"""detect_anomaly with check_nan, autograd profiler with stacks, record_function, nvtx-less emit, in a loop with schedule and on_trace_ready.

source: pytorch/pytorch PR 67407, meta-pytorch/tnt PR 361
meta: {"compare": ["status", "stdout", "files", "left", "tmp"], "ignore": ["trace*.json"]}
"""
import warnings
warnings.simplefilter("ignore")
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(314)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
ready = []


def done(p):
    ready.append(p.step_num)
    p.export_chrome_trace(f"trace{p.step_num}.json")


with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=done, with_stack=True, with_modules=True, profile_memory=True) as p:
    for step in range(9):
        with record_function("mine"):
            loss = model(torch.randn(3, 8)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        p.step()
        say(loss.item().hex())
with torch.autograd.detect_anomaly(check_nan=True):
    for step in range(2):
        loss = model(torch.randn(3, 8)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        say(loss.item().hex(), torch.is_anomaly_enabled())
with torch.autograd.profiler.profile() as q:
    model(torch.ones(1, 8)).sum().backward()
say(ready, sum(e.count for e in q.key_averages() if e.key == "aten::linear"), torch.is_anomaly_enabled(), sha(weights(model), grads(model)), rng())
