"""DDP: one rank has a batch with nan; a flag is reduced and all ranks skip, before backward in one case, after it (gradients dropped) never trained."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
seed(76)
net = DDP(nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16, track_running_stats=False), nn.ReLU(), nn.Linear(16, 2)))
watch(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
out = open(f"rank{rank}.txt", "w")
skips = 0
for step in range(20):
    g = torch.Generator().manual_seed(step * 2 + rank)
    x, y = torch.randn(8, 6, generator=g), torch.randint(0, 2, (8,), generator=g)
    if step in (4, 11) and rank == step % 2:
        x[0, 0] = math.nan
    loss = F.cross_entropy(net(x), y)
    flag = torch.tensor(float(not torch.isfinite(loss)))
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if flag.item():
        skips += 1
        opt.zero_grad(set_to_none=True)
        out.write(f"{step} skip\n")
        continue
    opt.zero_grad(); loss.backward(); opt.step()
    out.write(f"{step} {dig(loss)}\n")
out.write(f"{skips} {dig(dict(net.state_dict()), opt.state_dict()['state'])} {rngs()}\n")
out.close()
dist.barrier()
dist.destroy_process_group()
print("done") if rank == 0 else None
