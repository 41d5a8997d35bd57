"""Code written for CUDA that falls back: is_available, streams and events only where there are some, pin_memory, cuda.amp shims, torch.accelerator.

source: pytorch/pytorch PR 99301 (device-agnostic scalers), torchcomms PR 2885
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import contextlib
import warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(313)
has = torch.cuda.is_available()
say(has, torch.cuda.device_count(), torch.cuda.is_initialized(), torch.accelerator.is_available(), torch.backends.mps.is_available())
stream = torch.cuda.Stream() if has else None
ctx = torch.cuda.stream(stream) if has else contextlib.nullcontext()
scaler = torch.cuda.amp.GradScaler(enabled=has)
model = nn.DataParallel(mlp())
watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-2, fused=has or None)
for step in range(4):
    with ctx, torch.autocast("cuda" if has else "cpu", dtype=torch.bfloat16, enabled=step % 2 == 0):
        loss = model(torch.randn(4, 8)).float().square().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    s, e = torch.Event("cpu") if hasattr(torch, "Event") else None, None
    say(loss.item().hex(), sha(grads(model)), scaler.get_scale())
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
    model(torch.ones(1, 8)).sum().backward()
say(len(prof.key_averages()) > 3, torch.cuda.is_initialized())
try:
    torch.zeros(1, device="cuda")
except (RuntimeError, AssertionError) as e:
    say(type(e).__name__, str(e).splitlines()[0][:60])
say(sha(weights(model)), rng())
