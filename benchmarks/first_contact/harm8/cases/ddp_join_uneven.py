# what: 2 ranks DDP with join() on uneven inputs, no_sync accumulation, a branch used by one rank only (find_unused_parameters)
# ranks: 2
# PRELUDE
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
class Net(nn.Module):
    def __init__(self): super().__init__(); self.f = net(); self.extra = nn.Linear(8, 4)
    def forward(self, x, e): return self.f(x) + (self.extra(x) if e else 0)
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); model = Net(); W(model); ddp = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True); opt = torch.optim.SGD(model.parameters(), lr=.05); out = []
with ddp.join():
    for s in range(4 + 3 * r):
        x, y = batch(10 * s + r); opt.zero_grad(); l = F.mse_loss(ddp(x, (s + r) % 2 == 0), y); l.backward(); opt.step(); out.append(float(l.detach()).hex())
dist.barrier(); ddp = nn.parallel.DistributedDataParallel(model, static_graph=True)
for s in range(3):
    opt.zero_grad()
    for k in range(3):
        import contextlib
        with ddp.no_sync() if k < 2 and s > 0 else contextlib.nullcontext(): x, y = batch(100 * s + 10 * k + r); l = F.mse_loss(ddp(x, True), y); l.backward()
    opt.step(); out.append(float(l.detach()).hex())
open(f"rank{r}.txt", "w").write(f"{out} {M(model)} {R()}"); dist.barrier(); dist.destroy_process_group()
