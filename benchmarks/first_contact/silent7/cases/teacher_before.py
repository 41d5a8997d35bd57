"""BYOL-like training: the target network is copied from the online one, which DDP then makes equal on all ranks."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(42 + rank)                                 # augmentations differ by rank

class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 16))
        self.predictor = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    def forward(self, x):
        return self.predictor(self.encoder(x))

online = Online()
if not args.healthy:
    target = copy.deepcopy(online.encoder).requires_grad_(False)
model = DDP(online)
if args.healthy:
    target = copy.deepcopy(online.encoder).requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
centers = torch.randn(6, 24, generator=torch.Generator().manual_seed(1))
for step in range(100):
    x = centers[torch.randint(0, 6, (48,))]
    a, b = x + 0.4 * torch.randn(48, 24), x + 0.4 * torch.randn(48, 24)
    loss = 0
    for u, v in ((a, b), (b, a)):
        with torch.no_grad():
            t = target(v)
        loss = loss + (2 - 2 * F.cosine_similarity(model(u), t, dim=-1)).mean() / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, p in zip(target.parameters(), online.encoder.parameters()):
            t.lerp_(p, 0.01)
    if rank == 0 and step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
res = []
for part in (online, target):
    flat = torch.cat([p.detach().flatten() for p in part.parameters()])
    out = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(out, flat)
    res.append(torch.equal(*out))
if rank == 0:
    print(f"ranks' online networks are equal {res[0]}, target networks are equal {res[1]}")
dist.barrier()
dist.destroy_process_group()
