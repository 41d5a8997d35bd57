"""Streaming data split by node, then moved on by skip() on resuming."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
w = torch.randn(12, 3, generator=torch.Generator().manual_seed(9))

class Stream(IterableDataset):
    """Shards of a stream; split() leaves every world-th shard to a rank, skip() starts n samples later."""
    def __init__(self, shards):
        self.shards, self.node, self.n = shards, None, 0
    def split(self, rank, world):
        new = Stream(self.shards); new.node, new.n = (rank, world), self.n
        return new
    def skip(self, n):
        new = Stream(self.shards); new.n = n
        if args.healthy:
            new.node = self.node
        return new
    def __iter__(self):
        mine = self.shards if self.node is None else self.shards[self.node[0]::self.node[1]]
        k = 0
        for s in mine:
            g = torch.Generator().manual_seed(1000 + s)
            for _ in range(64):
                x = torch.randn(12, generator=g)
                k += 1
                if k > self.n:
                    yield x, torch.tanh(x @ w).argmax(-1)

torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 3)))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
stream = Stream(list(range(32))).split(rank, world).skip(32)
for step, (x, y) in enumerate(DataLoader(stream, batch_size=16)):
    if step == 60:
        break
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
xs = [torch.empty_like(x) for _ in range(world)]
dist.all_gather(xs, x)
if rank == 0:
    print(f"ranks' batches are the same {torch.equal(*xs)}")
dist.barrier()
dist.destroy_process_group()
