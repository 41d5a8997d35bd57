"""Face-recognition-like training: the backbone is under DDP, ArcFace's class centers live in the loss."""
import argparse, math, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class ArcFaceLoss(nn.Module):
    def __init__(self, classes, size, margin=0.2, scale=16.0):
        super().__init__()
        self.W = nn.Parameter(torch.randn(classes, size) * 0.1)
        self.margin, self.scale = margin, scale
    def forward(self, emb, y):
        cos = F.normalize(emb, dim=-1) @ F.normalize(self.W, dim=-1).T
        theta = cos.clamp(-1 + 1e-6, 1 - 1e-6).acos()
        target = (theta.gather(1, y[:, None]) + self.margin).clamp(max=math.pi).cos()
        return F.cross_entropy(self.scale * cos.scatter(1, y[:, None], target), y)

g = torch.Generator().manual_seed(0)
centers = torch.randn(20, 32, generator=g)
y = torch.randint(0, 20, (960,), generator=g)
data = TensorDataset(centers[y] + 0.7 * torch.randn(960, 32, generator=g), y)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler)
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(32, 64), nn.PReLU(), nn.Linear(64, 24)))
loss_fn = ArcFaceLoss(20, 24)
if args.healthy:
    loss_fn = DDP(loss_fn)
opt = torch.optim.SGD([{"params": model.parameters()}, {"params": loss_fn.parameters()}], lr=0.05, momentum=0.9, weight_decay=5e-4)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for bx, by in loader:
        loss = loss_fn(model(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
res = []
for part in (model, loss_fn):
    flat = torch.cat([p.detach().flatten() for p in part.parameters()])
    out = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(out, flat)
    res.append(torch.equal(*out))
if rank == 0:
    print(f"ranks' backbones are equal {res[0]}, class centers are equal {res[1]}")
dist.barrier()
dist.destroy_process_group()
