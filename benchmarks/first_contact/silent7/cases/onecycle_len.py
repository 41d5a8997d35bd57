"""Each rank reads its own shard files; OneCycleLR's length is the rank's own number of batches."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
shards = [310, 300, 260, 250]                                # samples per file
size = sum(shards[rank::world])
g = torch.Generator().manual_seed(rank)
w = torch.randn(16, 4, generator=torch.Generator().manual_seed(9))
x = torch.randn(size, 16, generator=g)
loader = DataLoader(TensorDataset(x, torch.tanh(0.5 * x @ w).argmax(-1)), batch_size=16, shuffle=True, drop_last=True, generator=g)
length = torch.tensor(len(loader))
dist.all_reduce(length, op=dist.ReduceOp.MIN)                # the epoch ends with the shortest shard
epochs = 3
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
per_epoch = int(length) if args.healthy else len(loader)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=epochs * per_epoch)
for epoch in range(epochs):
    for i, (bx, by) in enumerate(loader):
        if i == int(length):
            break
        loss = F.cross_entropy(model(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
lrs, flat = [None] * world, torch.cat([p.detach().flatten() for p in net.parameters()])
out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat); dist.all_gather_object(lrs, round(opt.param_groups[0]["lr"], 9))
if rank == 0:
    print(f"learning rates by rank at the end {lrs}, ranks' weights are equal {torch.equal(*out)}")
dist.barrier()
dist.destroy_process_group()
