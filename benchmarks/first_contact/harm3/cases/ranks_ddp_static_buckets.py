"""DDP with gradient_as_bucket_view, skipped all-reduce of unused graph parts, static graph, bucket sizes that split every layer."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
r = dist.get_rank()
out = []
for kw in (dict(gradient_as_bucket_view=True, bucket_cap_mb=0.0001, static_graph=True), dict(find_unused_parameters=True, skip_all_reduce_unused_params=True), dict(init_sync=False, broadcast_buffers=True)):
    m = nn.Sequential(*net(1), nn.BatchNorm1d(4))
    m = DDP(m, **kw)
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    for s in range(3):
        x, t = batch(10 * s + r)
        opt.zero_grad(set_to_none=s % 2 == 0)
        F.mse_loss(m(x), t).backward()
        opt.step()
    out.append(M(m.module))
with open(f"r{r}.txt", "w") as f:
    print(out, R(), file=f)
dist.destroy_process_group()
