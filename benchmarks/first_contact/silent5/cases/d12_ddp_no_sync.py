import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib, contextlib
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
net = nn.Sequential(nn.Linear(6, 24), nn.GroupNorm(4, 24), nn.ReLU(), nn.Linear(24, 3))
ddp = DDP(net)
opt = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
torch.manual_seed(rank)
K = 3
for i in range(90):
    x, y = torch.randn(8, 6), torch.randint(3, (8,))
    if (i, rank) in ((12, 0), (40, 1), (41, 0)):  # the first of its group, within no_sync, on one rank
        x[0] = float("inf")
    last = (i + 1) % K == 0
    with contextlib.nullcontext() if last else ddp.no_sync():
        (F.cross_entropy(ddp(x), y) / K).backward()
    if last:
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        if not (DROP and bad(opt)):
            opt.step()
        opt.zero_grad()
bits(net)
dist.destroy_process_group()
