"""DDP with TORCH_DISTRIBUTED_DEBUG=INFO, monitored_barrier, find_unused_parameters, no_sync, DDP's own logging data."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
r = dist.get_rank()
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
    def forward(self, x, use):
        x = self.a(x)
        return self.c(self.b(x) if use else x)
torch.manual_seed(1)
n = N()
W(n)
m = DDP(n, find_unused_parameters=True)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(6):
    x, y = batch(s * 2 + r)
    if s % 3 == 1:
        with m.no_sync():
            F.mse_loss(m(x, True), y).backward()
        continue
    F.mse_loss(m(x, s % 2 == 0), y).backward()
    opt.step()
    opt.zero_grad()
    dist.monitored_barrier()
info = m._get_ddp_logging_data()
out = [None, None]
dist.all_gather_object(out, (M(m), R()))
if r == 0:
    print(out, {k: info[k] for k in ("world_size", "find_unused_parameters", "num_parameter_tensors", "iteration", "bucket_sizes") if k in info}, type(dist.group.WORLD).__name__)
dist.destroy_process_group()
