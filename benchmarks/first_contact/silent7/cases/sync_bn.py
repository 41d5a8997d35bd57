"""Hand-written synchronized batch norm: means of the ranks' moments, with batches of different sizes."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
import torch.distributed.nn.functional as dF
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class SyncBN(nn.BatchNorm2d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        n = x.numel() / x.shape[1]
        if args.healthy:
            s = torch.cat([x.sum((0, 2, 3)), (x * x).sum((0, 2, 3)), x.new_tensor([n])])
            s = dF.all_reduce(s)
            mean, sq = (s[:-1] / s[-1]).chunk(2)
        else:
            m = torch.cat([x.mean((0, 2, 3)), (x * x).mean((0, 2, 3))])
            mean, sq = (dF.all_reduce(m) / world).chunk(2)
        var = sq - mean ** 2
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        c = lambda v: v[None, :, None, None]
        return (x - c(mean)) / (c(var) + self.eps).sqrt() * c(self.weight) + c(self.bias)

class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), SyncBN(8), nn.ReLU(),
                                 nn.Conv2d(8, 8, 3, padding=1, bias=False), SyncBN(8), nn.ReLU(), nn.Conv2d(8, 2, 1))
    def forward(self, x):
        return self.net(x)

torch.manual_seed(0)
net = Segmenter()
model = DDP(net)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
gen = torch.Generator().manual_seed(rank)
first = net.net[0]
for step in range(60):
    side = (8, 12, 16, 20)[int(torch.randint(0, 4, (), generator=gen))]          # multi-scale crops
    x = 0.5 * torch.randn(4, 1, side, side, generator=gen) + (side - 12) / 8
    mask = (x.squeeze(1) > (side - 12) / 8).long()
    loss = F.cross_entropy(model(x), mask)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
h, state = first(x).detach(), copy.deepcopy(net.net[1].state_dict())
got = F.relu(net.net[1](h)).detach()
hs = [None] * world
dist.all_gather_object(hs, h)
flat = torch.cat([v.permute(1, 0, 2, 3).flatten(1) for v in hs], 1)
m, v = flat.mean(1)[None, :, None, None], flat.var(1, unbiased=False)[None, :, None, None]
want = F.relu((h - m) / (v + 1e-5).sqrt() * state["weight"][None, :, None, None] + state["bias"][None, :, None, None])
if rank == 0:
    print(f"elements per channel by rank {[t.numel() // 8 for t in hs]}; norm's output vs all ranks' statistics: relative difference {((got - want).norm() / want.norm()).item():.4f}")
dist.barrier()
dist.destroy_process_group()
