"""New groups, broadcast_object_list, all_gather_object, scatter, a store of the script's own, monitored_barrier, reduce_scatter of gradients by hand.

Source: https://github.com/pytorch/gloo/issues/344
"""
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank(); g0 = dist.new_group([0]); both = dist.new_group([0, 1]); m = net(r); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for p in m.parameters(): dist.broadcast(p.data, 0)
o = [{"a": r, "w": M(m)} if r == 0 else None]; dist.broadcast_object_list(o); got = [None, None]; dist.all_gather_object(got, (r, M(m)))
for s in range(3):
    x, y = batch(10 * r + s); opt.zero_grad(); F.mse_loss(m(x), y).backward(); flat = torch.cat([p.grad.reshape(-1) for p in m.parameters()]); dist.all_reduce(flat, group=both); i = 0
    for p in m.parameters(): p.grad.copy_(flat[i:i + p.numel()].view_as(p) / 2); i += p.numel()
    opt.step()
if r == 0: dist.all_reduce(torch.ones(1), group=g0)
dist.monitored_barrier(); st = dist.distributed_c10d._get_default_store(); st.set(f"mine{r}", str(r)); dist.barrier()
open(f"r{r}.txt", "w").write(str((o, got, M(m), st.get(f"mine{1 - r}"), len(dist.distributed_c10d._world.pg_map), dist.get_backend(), str(both.name()))))
dist.destroy_process_group()
