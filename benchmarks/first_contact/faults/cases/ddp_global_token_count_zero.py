"""torchrun, 2 ranks, DDP: token losses are divided by an all-reduced count, which is 0 when every rank's window is a prompt.
Source: nvidia-cosmos/cosmos-rl#155, OpenRLHF/OpenRLHF#583."""
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CURED = "--cured" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Embedding(25, 12), nn.Linear(12, 12), nn.SiLU(), nn.Linear(12, 25)))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
torch.manual_seed(rank + 1)
for step in range(4):
    ids = torch.randint(25, (2, 9))
    labels = ids.clone()
    labels[:, : 9 if step == 2 else 3] = -100
    count = (labels != -100).sum().float()
    dist.all_reduce(count)
    if CURED:
        count = count.clamp(min=1)
    total = nn.functional.cross_entropy(net(ids).flatten(0, 1), labels.flatten(), reduction="sum")
    loss = total * dist.get_world_size() / count  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
