"""Dry run of a job of eight ranks on one: the process group "fake" talks to nobody; gradients are averaged by hand; nothing may wait for the seven others."""
# PRELUDE
import time
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=3, world_size=8, store=FakeStore())
m = net(1)
W(m)
for p in m.parameters():
    dist.broadcast(p.detach(), 0)
    p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad, op=dist.ReduceOp.AVG))
opt = torch.optim.AdamW(m.parameters(), 1e-3)
begin = time.time()
print(train(m, opt, 12))
t = torch.ones(3)
dist.all_reduce(t)
dist.barrier()
print(t.tolist(), dist.get_rank(), dist.get_world_size(), M(m), "slow" if time.time() - begin > 8 else "quick")
dist.destroy_process_group()
print(R())
