"""Two pipeline stages on gloo ranks (torch.distributed.pipelining, GPipe); the second stage normalizes by a root without epsilon.
Source: invented after pytorch/pytorch#2421 (the norm of zero), with torchtitan's use of PipelineStage.
Run: python -m torch.distributed.run --nproc-per-node 2 f43_pipeline.py"""
import sys, math
import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

torch.set_num_threads(1)
EPS = 1e-6 if "--cured" in sys.argv else 0.0


class First(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, d, bias=False), nn.ReLU(), nn.Linear(d, d, bias=False))

    def forward(self, x):
        return self.net(x)


class Second(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.mix = nn.Linear(d, d, bias=False)
        self.out = nn.Linear(d, 4)

    def forward(self, h):
        h = torch.tanh(self.mix(h))
        energy = torch.sqrt(h.pow(2).mean(-1, keepdim=True) + EPS)  # FAULT
        return self.out(h / (1 + energy))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(43)
    stages = [First(), Second()]
    module = stages[rank]
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    losses = []
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=F.cross_entropy)
    opt = torch.optim.SGD(module.parameters(), lr=0.05)
    for step in range(9):
        torch.manual_seed(1000 + step)
        y = torch.randint(0, 4, (16,))
        x = torch.randn(16, 16) + y[:, None]
        if step == 4:
            x[9] = 0.0  # a sensor was off
        opt.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            micro = []
            schedule.step(target=y, losses=micro)
            losses.append(torch.stack(micro).mean().item())
        opt.step()
    ok = all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in module.parameters())
    print(f"rank {rank} {losses}\n", end="", flush=True)
    print(f"FINITE {ok}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
