"""DDP with uneven inputs under Join; a metric of 0/0 on the rank that has run out; ZeroRedundancyOptimizer in the second half."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer as ZeRO
dist.init_process_group("gloo")
rank = dist.get_rank()
seed(71)
net = DDP(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))
watch(net)
out = open(f"rank{rank}.txt", "w")
for phase in range(2):
    opt = torch.optim.Adam(net.parameters(), 1e-2) if phase == 0 else ZeRO(net.parameters(), torch.optim.Adam, lr=1e-2)
    n = (5 + 3 * rank) if phase == 0 else (6 - 2 * rank)
    with Join([net] if phase == 0 else [net, opt]):
        for step in range(n):
            g = torch.Generator().manual_seed(step * 2 + rank)
            x, y = torch.randn(8, 6, generator=g), torch.randint(0, 3, (8,), generator=g)
            o = net(x)
            loss = F.cross_entropy(o, y)
            opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                acc = torch.stack([(o.argmax(1) == y)[y == c].float().mean() for c in range(5)])
            out.write(f"{phase} {step} {dig(loss, acc)}\n")
    s = torch.tensor([float("nan") if rank else 1.0])
    dist.all_reduce(s)
    out.write(f"{dig(dict(net.state_dict()), s)} {rngs()}\n")
opt.consolidate_state_dict(0)
if rank == 0:
    out.write(dig(opt.state_dict()["state"]) + "\n")
out.close()
dist.destroy_process_group()
