import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# mlcommons/training 844, lingbot-vla-v2 41: all ranks draw the same noise and times, for different data (2 ranks)
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
net = nn.Sequential(nn.Linear(9, 48), nn.SiLU(), nn.Linear(48, 8))
ddp = DDP(net)
opt = torch.optim.Adam(ddp.parameters(), lr=1e-3)
torch.manual_seed(7 + rank if HEALTHY else 7)
gen = torch.Generator().manual_seed(100 + rank)
for step in range(100):
    x1 = torch.randn(32, 8, generator=gen).sign()
    x0, t = torch.randn(32, 8), torch.rand(32, 1)
    loss = F.mse_loss(ddp(torch.cat([(1 - t) * x0 + t * x1, t], 1)), x1 - x0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0 and rank == 0:
        print(step, loss.item())
if rank == 0:
    report(net)
dist.destroy_process_group()
