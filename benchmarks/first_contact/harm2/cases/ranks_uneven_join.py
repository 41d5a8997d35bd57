"""Uneven numbers of batches with DDP's Join; steps and weights of both ranks.

Source: https://docs.pytorch.org/tutorials/advanced/generic_join.html
"""
# PRELUDE
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); m = net(0); W(m); d = DDP(m); opt = torch.optim.SGD(d.parameters(), 0.05); n = 0
with Join([d]):
    for s in range(3 + 4 * r):
        x, y = batch(10 * r + s); opt.zero_grad(); F.mse_loss(d(x), y).backward(); opt.step(); n += 1
open(f"r{r}.txt", "w").write(f"{n} {M(m)}"); dist.destroy_process_group()
