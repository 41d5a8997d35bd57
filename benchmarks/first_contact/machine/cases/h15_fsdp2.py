# ranks: 2
# opts: --check again:every=1
# truth: healthy (pytorch FSDP2 tutorial: fully_shard per layer, bf16 mixed precision, clipping); docs: not done again, a line says so
import flips as C, torch, torch.distributed as D
from torch import nn
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.distributed.device_mesh import init_device_mesh
D.init_process_group("gloo"); mesh = init_device_mesh("cpu", (2,)); torch.manual_seed(0)
m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)); pol = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for l in (m[0], m[2]): fully_shard(l, mesh=mesh, mp_policy=pol)
fully_shard(m, mesh=mesh, mp_policy=pol); o = torch.optim.AdamW(m.parameters(), 1e-3); torch.manual_seed(D.get_rank())
for C.STEP in range(6):
    m(torch.randn(8, 16)).float().square().mean().backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); o.step(); o.zero_grad()
C.finish([p.to_local() for p in m.parameters()]); D.destroy_process_group()
