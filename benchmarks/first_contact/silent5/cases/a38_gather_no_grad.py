import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# fromage 33, DuoduoCLIP 10: torch.distributed.all_gather has no gradient: the own features too are constants on one side (2 ranks)
import torch.distributed as dist
import torch.distributed.nn as dnn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 8), nn.Linear(10, 8)

    def forward(self, x, y):
        return F.normalize(self.a(x), dim=1), F.normalize(self.b(y), dim=1)


net = Two()
ddp = DDP(net)
opt = torch.optim.Adam(ddp.parameters(), lr=2e-3)
A, B = torch.randn(6, 12), torch.randn(6, 10)
torch.manual_seed(10 + rank)


def gather(x):
    if HEALTHY:
        return torch.cat(dnn.all_gather(x))
    out = [torch.zeros_like(x) for _ in range(world)]
    dist.all_gather(out, x)
    return torch.cat(out)


for step in range(80):
    z = torch.randn(24, 6)
    a, b = ddp(z @ A, z @ B)
    labels = torch.arange(24) + rank * 24
    loss = (F.cross_entropy(a @ gather(b).T / 0.1, labels) + F.cross_entropy(b @ gather(a).T / 0.1, labels)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0 and rank == 0:
        print(step, loss.item())
if rank == 0:
    report(net)
dist.destroy_process_group()
