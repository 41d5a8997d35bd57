"""torchrun, 2 ranks, a 1F1B pipeline: the first stage's sqrt has an infinite slope at 0; the nan is born in rank 0's backward.
Source: pytorch/pytorch#2421 (sqrt's slope at 0), in torch.distributed.pipelining."""
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

CURED = "--cured" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 8, bias=False)

    def forward(self, x):
        power = self.fc(x).pow(2)
        if CURED:
            power = power + 1e-8
        return torch.sqrt(power)  # FAULT


class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, h):
        return self.fc(self.norm(h))


module = Front() if rank == 0 else Back()
stage = PipelineStage(module, rank, 2, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=nn.functional.cross_entropy)
opt = torch.optim.SGD(module.parameters(), lr=0.01)
torch.manual_seed(3)
for step in range(4):
    x, y = torch.randn(4, 5), torch.randint(3, (4,))
    if step == 2:
        x[3] = 0
    opt.zero_grad()
    losses = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=losses)
    opt.step()
    print(rank, step, [round(l.item(), 3) for l in losses], flush=True)
dist.destroy_process_group()
