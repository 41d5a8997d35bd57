"""Healthy: GAN on 2 ranks, both networks under DDP, R1 now and then, an EMA of the generator on all ranks; 200 steps."""
import copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
ema = copy.deepcopy(G).eval().requires_grad_(False)
g, d = DDP(G, broadcast_buffers=False), DDP(D, broadcast_buffers=False)
opt_g = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.0, 0.99))
opt_d = torch.optim.Adam(d.parameters(), lr=1e-3, betas=(0.0, 0.99))
gen = torch.Generator().manual_seed(77 + rank)

def real(n=64):
    k = torch.randint(0, 8, (n, 1), generator=gen) * 0.785
    return torch.cat([k.cos(), k.sin()], 1) * 2 + 0.1 * torch.randn(n, 2, generator=gen)

for step in range(200):
    d.requires_grad_(True); g.requires_grad_(False)
    with torch.no_grad(): fake = g(torch.randn(64, 8, generator=gen))
    x = real().requires_grad_(step % 8 == 0)
    score = d(torch.cat([x, fake]))
    loss_d = F.softplus(-score[:64]).mean() + F.softplus(score[64:]).mean()
    if step % 8 == 0:
        grad, = torch.autograd.grad(score[:64].sum(), x, create_graph=True)
        loss_d = loss_d + 8 * 0.05 * grad.square().sum(1).mean()
    opt_d.zero_grad(); loss_d.backward(); opt_d.step()
    d.requires_grad_(False); g.requires_grad_(True)
    loss_g = F.softplus(-d(g(torch.randn(64, 8, generator=gen)))).mean()
    opt_g.zero_grad(); loss_g.backward(); opt_g.step()
    with torch.no_grad():
        for e, p in zip(ema.parameters(), G.parameters()): e.lerp_(p, 0.01)
    if rank == 0 and step % 40 == 0: print(f"step {step} D {loss_d.item():.4f} G {loss_g.item():.4f}")
res = []
for net in (G, D, ema):
    flat = torch.cat([p.detach().flatten() for p in net.parameters()]); out = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(out, flat); res.append(torch.equal(*out))
if rank == 0: print(f"200 steps, ranks' generator, discriminator, EMA are equal {res}, last losses {loss_d.item():.4f} {loss_g.item():.4f}")
dist.barrier()
dist.destroy_process_group()
