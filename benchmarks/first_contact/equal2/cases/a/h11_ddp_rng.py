# exact: DDP on two ranks, dropout, DistributedSampler, each rank's own random state, mid-epoch
# ranks: 2
import hashlib, os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 300
dist.init_process_group("gloo"); rank = dist.get_rank(); torch.manual_seed(11); X = torch.randn(112, 6); net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 6)); c = torch.load(f"r{rank}.pt") if os.path.exists(f"r{rank}.pt") else None; step = 0
if c: net.load_state_dict(c["net"])
ddp = nn.parallel.DistributedDataParallel(net); opt = torch.optim.Adam(ddp.parameters(), 1e-2); sampler = DistributedSampler(X, seed=5); torch.manual_seed(70 + rank)
if c: opt.load_state_dict(c["opt"]); step = c["step"]
while step < stop:
    epoch, skip = divmod(step, 7); sampler.set_epoch(epoch); it = iter(DataLoader(X, batch_size=8, sampler=sampler, generator=torch.Generator())); [next(it) for _ in range(skip)]
    if c: torch.set_rng_state(c["rng"]); c = None
    for x in it:
        loss = (ddp(x) - x).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); step += 1; both = loss.detach().clone(); dist.all_reduce(both)
        if rank == 0: print(step, repr(both.item()), flush=True)
        if step % 5 == 0: torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": step, "rng": torch.get_rng_state()}, f"r{rank}.pt"); dist.barrier()
        if step >= stop: break
if rank == 0: print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
dist.destroy_process_group()
