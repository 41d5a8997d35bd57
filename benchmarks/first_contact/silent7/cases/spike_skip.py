"""Training with a guard that skips a step whose loss spikes above its running mean."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class SpikeGuard:
    def __init__(self, factor=2.0, decay=0.9):
        self.factor, self.decay, self.mean = factor, decay, None
    def spike(self, loss):
        hit = self.mean is not None and loss > self.factor * self.mean
        if not hit:
            self.mean = loss if self.mean is None else self.decay * self.mean + (1 - self.decay) * loss
        return hit

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
guard, skipped = SpikeGuard(), 0
a = torch.randn(10, 2, generator=torch.Generator().manual_seed(2))
gen = torch.Generator().manual_seed(60 + rank)
for step in range(100):
    x = torch.randn(16, 10, generator=gen)
    y = torch.tanh(0.5 * x @ a)
    if torch.rand((), generator=gen) < 0.08:               # a bad file now and then
        y = y + 2.0 * torch.randn(16, 2, generator=gen)
    loss = F.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    spike = torch.tensor(float(guard.spike(loss.item())))
    if args.healthy:
        dist.all_reduce(spike, op=dist.ReduceOp.MAX)
    if spike.item():
        skipped += 1
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    if rank == 0 and step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f} skipped {skipped}")
flat = torch.cat([p.detach().flatten() for p in net.parameters()])
out, n = [torch.empty_like(flat) for _ in range(world)], [None] * world
dist.all_gather(out, flat); dist.all_gather_object(n, skipped)
if rank == 0:
    print(f"ranks' weights are equal {torch.equal(out[0], out[1])}; steps skipped by rank {n}")
dist.barrier()
dist.destroy_process_group()
