import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
def bits(*ms):
    h = hashlib.sha256()
    for m in ms:
        for k, v in m.state_dict().items():
            h.update(k.encode()); h.update(v.detach().contiguous().cpu().numpy().tobytes())
    print("BITS", dist.get_rank(), h.hexdigest(), flush=True)
def bad(opt):
    return any(p.grad is not None and not p.grad.isfinite().all() for g in opt.param_groups for p in g["params"])
dist.init_process_group("gloo")
rank = dist.get_rank()
net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
ddp = DDP(net)
opt = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.StepLR(opt, 10, 0.7)
torch.manual_seed(rank)
for step in range(40):
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    if (step, rank) in ((5, 1), (6, 0), (20, 1)):
        x[0] = float("inf")
    before = [b.clone() for b in net.buffers()]
    loss = F.cross_entropy(ddp(x), y)
    opt.zero_grad()
    loss.backward()
    if DROP and bad(opt):
        for b, o in zip(net.buffers(), before): b.copy_(o)
    else:
        opt.step()
    sched.step()
bits(net)
dist.destroy_process_group()
