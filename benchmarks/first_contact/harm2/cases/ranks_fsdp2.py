"""FSDP2 (fully_shard) by layer and mixed precision on gloo; full weights, local shards, clipped norm.

Source: https://github.com/pytorch/pytorch/issues/129206
"""
# PRELUDE
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
dist.init_process_group("gloo"); r = dist.get_rank(); mesh = dist.init_device_mesh("cpu", (2,)); f = open(f"r{r}.txt", "w")
for mp in (MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)):
    m = net(0)
    for l in (m[0], m[2], m[4]): fully_shard(l, mesh=mesh, mp_policy=mp)
    fully_shard(m, mesh=mesh, mp_policy=mp); W(m); opt = torch.optim.AdamW(m.parameters(), 1e-2)
    for s in range(4):
        x, y = batch(10 * r + s); opt.zero_grad(); loss = F.mse_loss(m(x).float(), y); loss.backward(); n = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); print(float(loss.detach()).hex(), float(n.full_tensor()).hex(), file=f)
    print(H([p.to_local() for p in m.parameters()], [p.full_tensor() for p in m.parameters()]), type(m).__name__, file=f)
f.close(); dist.destroy_process_group()
