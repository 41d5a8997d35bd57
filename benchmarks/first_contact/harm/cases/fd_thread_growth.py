"""Two thousand steps: descriptors, threads, children, shared-memory files and living tensors do not grow, memory hardly.

source: facebookresearch/dinov3#150, pytorch/pytorch#3835 (how memory is measured)
meta: {"limit": 120}
"""
import gc
import os
import threading
import torch
from fcw import mlp, say, seed, sha, watch, weights

seed(36)
model = mlp(8, 12, 3)
watch(model)
opt = torch.optim.Adam(model.parameters(), 1e-3)


def facts():
    gc.collect()
    rss = int(open("/proc/self/statm").read().split()[1]) * 4 / 1024
    tensors = sum(1 for o in gc.get_objects() if isinstance(o, torch.Tensor))
    kids = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task")), len(kids), tensors, rss


for step in range(2001):
    loss = (model(torch.randn(4, 8)) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == 500:
        first = facts()
last = facts()
say("fds", last[0] - first[0], "threads", last[1] - first[1], "tasks", last[2] - first[2], "children", last[3] - first[3], "tensors", last[4] - first[4])
say("memory grows by less than 25 MiB:", last[5] - first[5] < 25, sha(weights(model)))
