"""DDP run that is resumed: rank 0 reads the checkpoint, DDP hands its weights to the other ranks."""
import argparse, os, tempfile, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)
path = os.path.join(folder[0], "checkpoint.pt")
w = torch.randn(16, 3, generator=torch.Generator().manual_seed(5))
gen = torch.Generator().manual_seed(rank)

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 3))

def train(model, opt, sched, first, last):
    for step in range(first, last):
        x = torch.randn(32, 16, generator=gen)
        loss = F.cross_entropy(model(x), torch.tanh(0.5 * x @ w).argmax(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.2e}")

def setup(net):
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    return opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, 120)

net = build()
model = DDP(net)
opt, sched = setup(net)
train(model, opt, sched, 0, 40)
if rank == 0:
    torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "scheduler": sched.state_dict(), "step": 40}, path)
dist.barrier()
# ---- the job starts again
net = build()
opt, sched = setup(net)
start = torch.zeros(1, dtype=torch.long)
if rank == 0 or args.healthy:
    checkpoint = torch.load(path)
    net.load_state_dict(checkpoint["model"])
    opt.load_state_dict(checkpoint["optimizer"])
    sched.load_state_dict(checkpoint["scheduler"])
    start[0] = checkpoint["step"]
dist.broadcast(start, 0)
model = DDP(net)
train(model, opt, sched, int(start), 120)
flat = torch.cat([p.detach().flatten() for p in net.parameters()])
out, lrs = [torch.empty_like(flat) for _ in range(world)], [None] * world
dist.all_gather(out, flat); dist.all_gather_object(lrs, opt.param_groups[0]["lr"])
if rank == 0:
    print(f"ranks' weights are equal {torch.equal(*out)}, learning rates at the end {lrs}")
dist.barrier()
dist.destroy_process_group()
