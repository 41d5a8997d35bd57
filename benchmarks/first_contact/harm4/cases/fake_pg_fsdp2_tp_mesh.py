"""FSDP2 over a mesh of eight fake ranks, and a clip of the gradients' norm (DTensor), in one process."""
# PRELUDE
import time
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
for layer in (m[0], m[2]):
    fully_shard(layer, mesh=mesh["dp"])
fully_shard(m, mesh=mesh["dp"])
W(m)
opt = torch.optim.SGD(m.parameters(), 0.01)
begin = time.time()
for s in range(10):
    x, y = batch(s, 8, 16, 16)
    opt.zero_grad()
    out = m(x)
    out.mul(0).sum().backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
print(tuple(out.shape), [tuple(p.to_local().shape) for p in m.parameters()], "slow" if time.time() - begin > 8 else "quick")
print(type(m).__name__, [str(p.placements) for p in m.parameters()])
dist.destroy_process_group()
print(R())
