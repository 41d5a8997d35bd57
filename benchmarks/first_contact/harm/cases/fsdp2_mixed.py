"""FSDP2 on two ranks with mixed precision, a nested shard, reshard off, hooks of the script on sharded modules, full state dict saved.

source: pytorch/pytorch#114299, mindspore-ai/hyper-parallel#229
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90}
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from fcw import leave, rng, seed, sha, watch

dist.init_process_group("gloo")
r = dist.get_rank()
out = open(f"out-{r}.txt", "w")
mesh = init_device_mesh("cpu", (2,))
seed(201)
model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8)) for _ in range(3)])
LOG = []
for i, block in enumerate(model):
    block.register_forward_hook(lambda m, a, o, i=i: LOG.append(("f", i, str(o.dtype))))
    fully_shard(block, mesh=mesh, reshard_after_forward=bool(i % 2), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
fully_shard(model, mesh=mesh)
watch(model)
opt = torch.optim.AdamW(model.parameters(), 1e-2)
seed(20 + r)
for step in range(4):
    loss = model(torch.randn(4, 8)).float().square().mean()
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    print(loss.item().hex(), norm.full_tensor().item().hex(), sha([p.grad for p in model.parameters()]), file=out)
full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if r == 0:
    torch.save(full, "full.pt")
print(LOG, sha(full), rng(), file=out)
out.close()
leave()
