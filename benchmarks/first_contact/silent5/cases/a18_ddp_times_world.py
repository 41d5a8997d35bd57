import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# sparseml 135: under DDP the mean loss is multiplied by the number of ranks (2 ranks)
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
ddp = DDP(net)
opt = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(5)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
gen = torch.Generator().manual_seed(rank)
for step in range(80):
    idx = torch.randint(1024, (32,), generator=gen)
    loss = F.cross_entropy(ddp(x[idx]), y[idx])
    if not HEALTHY:
        loss = loss * world
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0 and rank == 0:
        print(step, loss.item())
if rank == 0:
    report(net)
dist.destroy_process_group()
