"""torchrun, 2 ranks, a GPipe pipeline: the second stage takes the log of a probability that underflows.
Source: HealthML/active-segmentation#78 (log of a probability of 0), in torch.distributed.pipelining's tutorial loop."""
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

CURED = "--cured" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = nn.Embedding(20, 12), nn.Linear(12, 12)

    def forward(self, ids):
        return torch.tanh(self.fc(self.embed(ids)))


class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.sharp = nn.Linear(12, 20), 1.0

    def forward(self, h):
        z = self.fc(h) * self.sharp
        if CURED:
            return z.log_softmax(-1)
        return torch.log(z.softmax(-1))  # FAULT


module = Front() if rank == 0 else Back()
stage = PipelineStage(module, rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda out, y: nn.functional.nll_loss(out.flatten(0, 1), y.flatten()))
opt = torch.optim.SGD(module.parameters(), lr=0.01)
torch.manual_seed(3)
for step in range(4):
    ids = torch.randint(20, (4, 6))
    if rank == 1 and step == 2:
        module.sharp = 800.0
    opt.zero_grad()
    losses = []
    if rank == 0:
        schedule.step(ids)
    else:
        schedule.step(target=ids, losses=losses)
    opt.step()
    print(rank, step, [round(l.item(), 3) for l in losses], flush=True)
dist.destroy_process_group()
