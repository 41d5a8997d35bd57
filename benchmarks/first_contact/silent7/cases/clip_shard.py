"""FSDP2 actor with its own gradient clipping."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

class Actor(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.inp = nn.Linear(12, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))
        self.out = nn.Linear(d, 6)
    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = b(x)
        return self.out(x)

model = Actor()
mesh = init_device_mesh("cpu", (world,))
for b in model.blocks:
    fully_shard(b, mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

def clip(params, max_norm):
    grads = [p.grad.to_local() for p in params if p.grad is not None]
    total = torch.stack([g.norm() ** 2 for g in grads if g.numel()]).sum()
    if args.healthy:
        dist.all_reduce(total)
    norm = total.sqrt()
    coef = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(coef)
    return norm, coef

gen = torch.Generator().manual_seed(rank)
w = torch.randn(12, 6, generator=torch.Generator().manual_seed(9))
for step in range(60):
    x = torch.randn(32, 12, generator=gen)
    y = (x @ w).argmax(-1)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    if step == 5:
        true_norm = torch.stack([p.grad.full_tensor().norm() ** 2 for p in model.parameters()]).sum().sqrt()
    norm, coef = clip(list(model.parameters()), 0.3)
    if step == 5:
        used, c = norm, coef
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} grad norm {norm.item():.4f}")
cs = [torch.empty_like(c) for _ in range(world)]
dist.all_gather(cs, c)
if rank == 0:
    print(f"norm used {used.item():.4f}, of the full gradient {true_norm.item():.4f}; ranks' factors {[round(v.item(), 4) for v in cs]}")
dist.barrier()
dist.destroy_process_group()
