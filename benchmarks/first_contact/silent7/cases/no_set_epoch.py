"""Vocoder-like regression with a DistributedSampler over several epochs."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class Waves(Dataset):
    def __init__(self, n=384):
        g = torch.Generator().manual_seed(0)
        f = torch.rand(n, 1, generator=g) * 3 + 0.5
        t = torch.linspace(0, 3, 40)
        self.x = torch.sin(f * t) + 0.1 * torch.randn(n, 40, generator=g)
        self.y = torch.cos(f * t)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return i, self.x[i], self.y[i]

data = Waves()
sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True)
loader = DataLoader(data, batch_size=16, sampler=sampler, shuffle=False, drop_last=True)
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(40, 96), nn.LeakyReLU(0.1), nn.Linear(96, 96), nn.LeakyReLU(0.1), nn.Linear(96, 40)))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
orders = []
for epoch in range(6):
    if args.healthy:
        sampler.set_epoch(epoch)
    order = []
    for index, x, y in loader:
        order.append(index)
        loss = F.l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    orders.append(torch.cat(order))
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
if rank == 0:
    print(f"all epochs have the samples of this rank in the same order {all(torch.equal(orders[0], o) for o in orders)}")
dist.barrier()
dist.destroy_process_group()
