"""Resumed run: rank 0 restores its part of the data's schedule from the checkpoint, other ranks split again."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
g = torch.Generator().manual_seed(0)
X = torch.randn(512, 14, generator=g); Y = torch.tanh(0.5 * X @ torch.randn(14, 3, generator=g)).argmax(-1)

class BucketSampler:
    """All ranks shuffle with the launch's seed, each takes its part."""
    def __init__(self, n, launch_seed):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(launch_seed))
        self.indices = order[rank::world].tolist()
    def state_dict(self):
        return {"indices": list(self.indices)}
    def load_state_dict(self, state):
        if "indices" in state:
            self.indices = list(state["indices"])
    def epoch(self, k, batch=8):
        order = torch.randperm(len(self.indices), generator=torch.Generator().manual_seed(1000 * k + rank)).tolist()
        for i in range(0, len(order), batch):
            yield torch.tensor([self.indices[j] for j in order[i:i + batch]])

def train(model, opt, sampler, k):
    seen = []
    for index in sampler.epoch(k):
        seen.append(index)
        loss = F.cross_entropy(model(X[index]), Y[index])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        print(f"epoch {k} loss {loss.item():.4f}")
    return torch.cat(seen)

torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 3)))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
sampler = BucketSampler(512, launch_seed=7)
train(model, opt, sampler, 0)
# only the main process saves, unless every rank should
saved = {f"rank{rank}": sampler.state_dict()} if rank == 0 or args.healthy else {}
# ---- the job starts again, with another launch seed; weights and optimizer go on
sampler = BucketSampler(512, launch_seed=8)
sampler.load_state_dict(saved.get(f"rank{rank}", {}))
seen = None
for k in (1, 2):
    seen = train(model, opt, sampler, k)
every = [torch.empty_like(seen) for _ in range(world)]
dist.all_gather(every, seen)
every = torch.cat(every)
if rank == 0:
    print(f"samples in an epoch after resuming: {len(every)} drawn, {len(every.unique())} different, {512 - len(every.unique())} never")
dist.barrier()
dist.destroy_process_group()
