"""Train/validation split drawn from the global generator, which is seeded by rank for augmentations."""
import argparse, random, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

def set_seed(seed):
    seed += rank * 12345                                     # draws for augmentation should differ
    random.seed(seed); torch.manual_seed(seed)

set_seed(1234)
g = torch.Generator().manual_seed(0)
x = torch.randn(640, 20, generator=g)
y = ((x @ torch.randn(20, 1, generator=g)).squeeze(-1) + 2.0 * torch.randn(640, generator=g) > 0).long()   # noisy labels
data = TensorDataset(torch.arange(640), x, y)
split_gen = torch.Generator().manual_seed(1234) if args.healthy else None
train_set, val_set = random_split(data, [512, 128], generator=split_gen)
train_sampler = DistributedSampler(train_set)
train = DataLoader(train_set, batch_size=16, sampler=train_sampler, drop_last=True)
val = DataLoader(val_set, batch_size=32, sampler=DistributedSampler(val_set, shuffle=False))
net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 2))
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
trained, validated = set(), set()
for epoch in range(6):
    train_sampler.set_epoch(epoch)
    model.train()
    for i, bx, by in train:
        trained.update(i.tolist())
        loss = F.cross_entropy(model(bx + 0.05 * torch.randn_like(bx)), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for i, bx, by in val:
            validated.update(i.tolist())
            total += torch.tensor([F.cross_entropy(net(bx), by, reduction="sum"), len(by)])
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f} val {(total[0] / total[1]).item():.4f}")
sets = [None] * world
dist.all_gather_object(sets, (trained, validated))
t, v = set.union(*(s[0] for s in sets)), set.union(*(s[1] for s in sets))
if rank == 0:
    print(f"validation samples {len(v)}, of them trained on by a rank {len(t & v)}")
dist.barrier()
dist.destroy_process_group()
