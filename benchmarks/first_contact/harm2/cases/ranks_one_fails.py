"""Rank 1 raises in its step; torchrun ends rank 0 and gives status 1; files that were written.

Source: https://github.com/salesforce/MUST/issues/7
"""
# PRELUDE
import torch.distributed as dist, time
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); m = net(0); d = DDP(m); opt = torch.optim.SGD(d.parameters(), 0.1); train(d, opt, 3, 10 * r)
open(f"r{r}.txt", "w").write(M(m))
if r == 1: raise ValueError("rank 1's own error")
time.sleep(30)
