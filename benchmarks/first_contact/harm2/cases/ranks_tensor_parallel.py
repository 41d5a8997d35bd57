"""Tensor parallelism (ColwiseParallel, RowwiseParallel) by DTensor on gloo: losses and shards.

Source: https://github.com/Modalities/modalities/pull/374
"""
# PRELUDE
import torch.distributed as dist
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
dist.init_process_group("gloo"); r = dist.get_rank(); mesh = dist.init_device_mesh("cpu", (2,))
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)); parallelize_module(m, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); f = open(f"r{r}.txt", "w")
for s in range(4):
    x, y = batch(s); opt.zero_grad(); loss = F.mse_loss(m(x), y); loss.backward(); opt.step(); print(float(loss.detach()).hex(), file=f)
print([str(p.placements) for p in m.parameters()], H([p.to_local() for p in m.parameters()], [p.full_tensor() for p in m.parameters()]), file=f); f.close(); dist.destroy_process_group()
