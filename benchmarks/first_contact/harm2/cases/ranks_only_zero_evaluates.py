"""Rank 0 alone evaluates (more forwards, saves, sleeps) while rank 1 waits at a barrier: no hang, same weights.

Source: https://github.com/wandb/wandb/issues/1927 and the common pattern `if rank == 0: validate()`
"""
# PRELUDE
import torch.distributed as dist, time
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); m = net(0); W(m); d = DDP(m); opt = torch.optim.SGD(d.parameters(), 0.1)
for e in range(3):
    train(d, opt, 2, 10 * r + 2 * e)
    if r == 0:
        m.eval()
        with torch.no_grad(): v = [float(m(batch(50 + k)[0]).sum()).hex() for k in range(5)]
        m.train(); torch.save(m.state_dict(), f"e{e}.pt"); k = net(5); w = train(k, torch.optim.SGD(k.parameters(), 0.1), 3); print(v, w, flush=True)
    dist.barrier()
open(f"r{r}.txt", "w").write(M(m)); dist.destroy_process_group()
