"""DDP with gradient accumulation and no_sync, counted by the batch index."""
import argparse, contextlib, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(1280, 20); y = (x[:, :5].sum(1) > x[:, 5:10].sum(1)).long()
data = TensorDataset(x, y)
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
model = DDP(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2)))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
accum_grad = 4
torch.manual_seed(1 + rank)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch_idx, (bx, by) in enumerate(loader):
        index = batch_idx + 1 if args.healthy else batch_idx
        context = model.no_sync if index % accum_grad != 0 else contextlib.nullcontext
        with context():
            loss = F.cross_entropy(model(bx), by) / accum_grad
            loss.backward()
        if (batch_idx + 1) % accum_grad == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            opt.zero_grad()
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item() * accum_grad:.4f}")
flat = torch.cat([p.detach().flatten() for p in model.parameters()])
out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0:
    print(f"ranks' weights are equal {torch.equal(out[0], out[1])}, largest difference {(out[0] - out[1]).abs().max():.2e}")
dist.barrier()
dist.destroy_process_group()
