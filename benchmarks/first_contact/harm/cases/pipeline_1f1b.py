"""A pipeline of two stages by 1F1B and GPipe, with a loss only on the last, gradients and outputs on each rank.

source: pytorch docs distributed.pipelining; pytorch/pytorch PR 47886 style threads
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90}
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from fcw import grads, leave, rng, seed, sha, watch, weights

dist.init_process_group("gloo")
r = dist.get_rank()
out = open(f"out-{r}.txt", "w")
for kind in (Schedule1F1B, ScheduleGPipe):
    seed(203 + r)
    mod = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    watch(mod)
    stage = PipelineStage(mod, r, 2, torch.device("cpu"))
    schedule = kind(stage, 4, loss_fn=nn.MSELoss())
    opt = torch.optim.SGD(mod.parameters(), 0.1)
    seed(9)
    for step in range(4):
        x, y = torch.randn(8, 6), torch.randn(8, 6)
        opt.zero_grad()
        losses = []
        if r == 0:
            schedule.step(x)
        else:
            got = schedule.step(target=y, losses=losses)
            print(sha(got), [l.item().hex() for l in losses], file=out)
        print(sha(grads(mod)), file=out)
        opt.step()
    print(sha(weights(mod)), rng(), file=out)
out.close()
leave()
