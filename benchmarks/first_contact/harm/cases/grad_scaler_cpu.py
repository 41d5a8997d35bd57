"""torch.amp.GradScaler on the CPU in float16, growth, two optimizers, unscale and clip, and a state that is saved and loaded.

source: pytorch/pytorch PR 26512, pytorch/pytorch PR 99301
"""
import torch
from torch import nn
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(42)
model, head = mlp(), nn.Linear(4, 2)
watch(model)
watch(head)
opts = [torch.optim.SGD(model.parameters(), 0.05), torch.optim.Adam(head.parameters(), 1e-3)]
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
for step in range(8):
    with torch.autocast("cpu", torch.float16):
        out = head(model(torch.randn(6, 8)))
        loss = out.float().square().mean()
    for o in opts:
        o.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opts[0])
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    for o in opts:
        scaler.step(o)
    scaler.update()
    say(out.dtype, loss.item().hex(), norm.item().hex(), scaler.get_scale(), sha(grads(model), grads(head)))
    if step == 4:
        other = torch.amp.GradScaler("cpu")
        other.load_state_dict(scaler.state_dict())
        scaler = other
say(scaler.state_dict(), sha(weights(model), weights(head)), rng())
