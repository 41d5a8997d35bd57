"""torchrun, 2 ranks, DDP. Benign: rank 1's validation shard has no positive, so its recall is nan; it is only printed.
Source: Project-MONAI/MONAI#120's nan metric, on one rank."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank + 1)
for epoch in range(3):
    for _ in range(3):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.randint(2, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        y = torch.zeros(8) if rank == 1 else torch.ones(8)
        hit = net.module(torch.randn(8, 4)).argmax(1) == 1
        recall = (hit & (y == 1)).sum() / (y == 1).sum()
    net.train()
    print(rank, epoch, loss.item(), "recall", recall.item(), flush=True)
dist.destroy_process_group()
