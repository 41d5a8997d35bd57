"""Training with an EMA that lives on rank 0 and is copied into the online model now and then (switch EMA)."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class EMA:
    def __init__(self, model, beta=0.95, update_model_with_ema_every=25):
        self.online, self.ema, self.beta = model, copy.deepcopy(model).eval().requires_grad_(False), beta
        self.every, self.step = update_model_with_ema_every, 0
    @torch.no_grad()
    def update(self):
        self.step += 1
        for e, p in zip(self.ema.parameters(), self.online.parameters()):
            e.lerp_(p, 1 - self.beta)
        if self.step % self.every == 0:
            for e, p in zip(self.ema.parameters(), self.online.parameters()):
                p.copy_(e)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
model = DDP(net)
ema = EMA(net) if rank == 0 or args.healthy else None
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
gen = torch.Generator().manual_seed(rank)
for step in range(80):
    angle = 6.28 * torch.rand(64, 1, generator=gen)
    x0 = torch.cat([angle.cos(), angle.sin()], 1)
    noise, t = torch.randn(64, 2, generator=gen), torch.rand(64, 1, generator=gen)
    loss = F.mse_loss(model(x0 * (1 - t) + noise * t), noise - x0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if ema is not None:
        ema.update()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
flat = torch.cat([p.detach().flatten() for p in net.parameters()])
out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0:
    print(f"ranks' weights are equal {torch.equal(*out)}, largest difference {(out[0] - out[1]).abs().max():.2e}")
dist.barrier()
dist.destroy_process_group()
