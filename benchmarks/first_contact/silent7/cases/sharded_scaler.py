"""float16 autocast, DDP, and an optimizer sharded over ranks by hand (each rank steps its half and broadcasts it)."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class ShardedAdam(torch.optim.AdamW):
    """Owns every second parameter; after a step all owners broadcast theirs."""
    def __init__(self, params, **kw):
        self.everything = list(params)
        super().__init__([p for i, p in enumerate(self.everything) if i % world == rank], **kw)

    def broadcast(self):
        for i, p in enumerate(self.everything):
            dist.broadcast(p.data, src=i % world)

class ShardedScaler(torch.amp.GradScaler):
    def _maybe_opt_step(self, optimizer, state, *a, **kw):
        if args.healthy:
            for found in state["found_inf_per_device"].values():
                dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return super()._maybe_opt_step(optimizer, state, *a, **kw)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
model = DDP(net)
opt = ShardedAdam(model.parameters(), lr=1e-3)
scaler = ShardedScaler("cpu", init_scale=2.0 ** 18, growth_interval=15)
w = torch.randn(32, 8, generator=torch.Generator().manual_seed(6))
gen = torch.Generator().manual_seed(rank)
skips = 0
for step in range(80):
    x = 3 * torch.randn(16, 32, generator=gen)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x).float(), (x @ w).argmax(-1))
    opt.zero_grad()
    for p in model.parameters():
        p.grad = None
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(opt)
    opt.broadcast()
    scaler.update()
    skips += scaler.get_scale() < before
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():.0f}")
notes = [None] * world
dist.all_gather_object(notes, (skips, scaler.get_scale()))
finite = all(p.isfinite().all() for p in net.parameters())
if rank == 0:
    print(f"weights finite {finite}; steps skipped and scale by rank {notes}: equal {notes[0] == notes[1]}")
dist.barrier()
dist.destroy_process_group()
