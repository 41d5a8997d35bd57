"""DDP with ReduceLROnPlateau on the validation loss of each rank's own part."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
g = torch.Generator().manual_seed(3)
x = torch.randn(640, 12, generator=g); y = torch.tanh(0.5 * x @ torch.randn(12, 1, generator=g)) + 0.3 * torch.randn(640, 1, generator=g)
train_set, val_set = TensorDataset(x[:512], y[:512]), TensorDataset(x[512:], y[512:])
train_sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=32, sampler=train_sampler)
val_loader = DataLoader(val_set, batch_size=32, sampler=DistributedSampler(val_set, shuffle=False))
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
model = DDP(net)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
rates = []
for epoch in range(24):
    train_sampler.set_epoch(epoch)
    model.train()
    for bx, by in train_loader:
        loss = F.mse_loss(model(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        val = torch.stack([F.mse_loss(net(bx), by) for bx, by in val_loader]).mean()
    shown = val.clone()
    dist.all_reduce(shown)
    shown /= world
    sched.step(shown if args.healthy else val)
    rates.append(opt.param_groups[0]["lr"])
    if rank == 0:
        print(f"epoch {epoch} val {shown.item():.4f} lr {opt.param_groups[0]['lr']:.2e}")
lrs = [None] * world
dist.all_gather_object(lrs, rates)
flat = torch.cat([p.detach().flatten() for p in net.parameters()])
out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0:
    print(f"epochs with other learning rates on the ranks {sum(a != b for a, b in zip(*lrs))} of {len(rates)}, ranks' weights are equal {torch.equal(*out)}")
dist.barrier()
dist.destroy_process_group()
