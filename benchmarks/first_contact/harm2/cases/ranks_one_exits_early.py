"""Rank 1 ends normally after 2 steps, rank 0 trains on alone: status 0, no waiting for 60 s (the set's limit).

Source: https://github.com/pytorch/PiPPy/issues/989
"""
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank(); m = net(r); opt = torch.optim.SGD(m.parameters(), 0.1)
train(m, opt, 2); dist.barrier()
if r == 1: open("r1.txt", "w").write(M(m)); sys.exit(0)
open("r0.txt", "w").write(train(m, opt, 200) + M(m))
