"""Composable replicate(), get_state_dict and set_state_dict with full and sharded options, broadcast from rank 0, an optimizer loaded before its first step."""
# PRELUDE
import warnings

warnings.filterwarnings("ignore")
import torch.distributed as dist
from torch.distributed._composable.replicate import replicate
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_model_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
r = dist.get_rank()
say = lambda *a: print(*a, flush=True) if r == 0 else None
a = replicate(net(1))
W(a)
oa = torch.optim.AdamW(a.parameters(), 1e-2)
t = train(a, oa, 4, 10 * r)
say(t, M(a), type(a).__name__)
b = net(2)
mesh = init_device_mesh("cpu", (2,))
for k in (b[0], b[2], b[4]):
    fully_shard(k, mesh=mesh)
fully_shard(b, mesh=mesh)
W(b)
ob = torch.optim.AdamW(b.parameters(), 1e-2)
full = StateDictOptions(full_state_dict=True, cpu_offload=True)
say(train(b, ob, 3, 10 * r + 4))
msd = get_model_state_dict(b, options=StateDictOptions(full_state_dict=True))
say(sorted(msd)[:2], H(msd))
set_model_state_dict(a, msd, options=StateDictOptions(full_state_dict=True))
say(train(a, oa, 3, 10 * r + 2), M(a))
m2, o2 = get_state_dict(b, ob, options=full)
say(H(m2), sorted(o2))
set_model_state_dict(b, get_model_state_dict(a, options=StateDictOptions(full_state_dict=True)), options=StateDictOptions(full_state_dict=True))
b.set_requires_gradient_sync(False)
x, y = batch(r)
F.mse_loss(b(x), y).backward()
b.set_requires_gradient_sync(True)
F.mse_loss(b(y @ torch.ones(4, 8)), y).backward()
ob.step()
say(H(b[0].weight.to_local()))
last = get_model_state_dict(b, options=full)
say(H(last), train(a, oa, 2, 10 * r + 9), M(a)) if r == 0 else train(a, oa, 2, 10 * r + 9)
dist.barrier()
dist.destroy_process_group()
