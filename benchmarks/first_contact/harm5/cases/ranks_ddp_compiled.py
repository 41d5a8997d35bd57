"""torch.compile around DDP (DDPOptimizer) and DDP around a compiled module, backend aot_eager, gradient accumulation, same bits on both ranks."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
r = dist.get_rank()
res = []
for how in (0, 1):
    torch.manual_seed(1)
    m = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)], nn.Linear(8, 4))
    W(m)
    if how:
        d = DDP(torch.compile(m, backend="aot_eager"))
    else:
        d = torch.compile(DDP(m), backend="aot_eager")
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    for s in range(5):
        x, y = batch(s * 2 + r)
        loss = F.mse_loss(d(x), y)
        loss.backward()
        if s % 2:
            opt.step()
            opt.zero_grad()
    res.append((float(loss.detach()).hex(), M(m)))
out = [None, None]
dist.all_gather_object(out, (res, R()))
if r == 0:
    print(out)
dist.destroy_process_group()
