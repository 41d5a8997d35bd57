"""torch.distributed.checkpoint: async_save of FSDP2 model and optimizer while training goes on, loaded into a new model; state_dict helpers."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict, StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
dist.init_process_group("cpu:gloo")
rank = dist.get_rank()
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))


def build():
    seed(77)
    net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 2))
    for m in (net[0], net[2]):
        fully_shard(m, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net, torch.optim.AdamW(net.parameters(), 1e-2)


net, opt = build()
watch(net)
out = open(f"rank{rank}.txt", "w")
fut = None


def train(net, opt, steps):
    for step in steps:
        g = torch.Generator().manual_seed(step * 2 + rank)
        loss = F.cross_entropy(net(torch.randn(8, 6, generator=g)), torch.randint(0, 2, (8,), generator=g))
        opt.zero_grad(); loss.backward()
        n = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        out.write(f"{step} {dig(loss, n.full_tensor())}\n")


train(net, opt, range(5))
m, o = get_state_dict(net, opt)
fut = dcp.async_save({"m": m, "o": o}, checkpoint_id="ck")
with torch.no_grad():
    out.write(dig(net(torch.zeros(1, 6)) / 0) + "\n")
fut.result()
train(net, opt, range(5, 9))
full = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
out.write(dig(dict(full)) + "\n")
net2, opt2 = build()
watch(net2)
m, o = get_state_dict(net2, opt2)
dcp.load({"m": m, "o": o}, checkpoint_id="ck")
set_state_dict(net2, opt2, model_state_dict=m, optim_state_dict=o)
train(net2, opt2, range(5, 9))
full2 = get_model_state_dict(net2, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
out.write(f"{dig(dict(full2))} {all(torch.equal(full[k], full2[k]) for k in full)} {rngs()}\n")
out.close()
dist.barrier()
if rank == 0:
    import shutil
    shutil.rmtree("ck")
dist.destroy_process_group()
