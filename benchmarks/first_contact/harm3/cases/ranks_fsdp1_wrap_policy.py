"""The older FullyShardedDataParallel: wrap policy, use_orig_params on and off, summon_full_params, its own clip_grad_norm_, full state dict on rank 0, no_sync; weights."""
# PRELUDE
import functools
import warnings

warnings.simplefilter("ignore")
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

dist.init_process_group("gloo")
r = dist.get_rank()
out = []
for orig, st in ((True, ShardingStrategy.FULL_SHARD), (False, ShardingStrategy.SHARD_GRAD_OP)):
    m = FSDP(net(1, 8, 32, 4), auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=200), use_orig_params=orig, sharding_strategy=st, device_id=torch.device("cpu"))
    W(m)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    for s in range(4):
        x, t = batch(10 * s + r)
        opt.zero_grad()
        if s == 1:
            with m.no_sync():
                F.mse_loss(m(x), t).backward()
        F.mse_loss(m(x), t).backward()
        n = m.clip_grad_norm_(0.5)
        opt.step()
        out.append(float(n).hex())
    with FSDP.summon_full_params(m, writeback=False):
        out.append(H([p.detach().clone() for p in m.parameters()]))
with open(f"r{r}.txt", "w") as f:
    print(out, file=f)
dist.destroy_process_group()
