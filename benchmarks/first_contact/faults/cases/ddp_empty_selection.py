"""torchrun, 2 ranks, DDP: rank 1's shard has no positive sample in one step, and the mean of nothing is nan.
Source: lululxvi/deepxde#1338 (mean of an empty tensor), ultralytics/yolov5#736 (nan under DDP only)."""
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CURED = "--cured" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
torch.manual_seed(rank + 1)
for step in range(4):
    x = torch.randn(4, 2, 12)
    positive = torch.ones(4, dtype=torch.bool)
    if step == 2 and rank == 1:
        positive[:] = False
    out = net(x)
    objectness = nn.functional.binary_cross_entropy_with_logits(out[:, 0], positive.float())
    offsets = (out[:, 1:] - x.mean(-1)).abs().sum(1)
    if CURED:
        box = (offsets * positive).sum() / positive.sum().clamp(min=1)
    else:
        box = offsets[positive].mean()  # FAULT
    loss = objectness + box
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
